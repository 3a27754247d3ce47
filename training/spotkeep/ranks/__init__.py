"""Several processes that train one model, and save and restore it together."""
