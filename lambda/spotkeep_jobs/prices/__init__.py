"""What AWS charges: read from its price list once a day, kept in the run table, and never guessed.

storage_cost  what storage costs over a time (pure)
price_list    AWS's price list: the only module that calls its client, and how its products are read
known         the prices that one function works with: the deployment's settings before AWS's list

The book itself is a fact that everyone shares: `facts.price_book`.
"""
