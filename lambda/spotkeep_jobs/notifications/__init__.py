"""What is sent to people: the texts, the outbox, the topic, and what becomes of what cannot be sent."""
