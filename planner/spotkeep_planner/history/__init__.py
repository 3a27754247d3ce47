"""Where knowledge of capacity comes from when there is no trace: the account's price history, and the runs so far."""
