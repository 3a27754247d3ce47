"""Adapters for training frameworks. Each loads its framework when it is imported, and nothing else imports them."""
