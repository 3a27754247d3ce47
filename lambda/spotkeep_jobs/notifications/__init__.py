"""Notifications to people, with their texts, the outbox, the topic and the dead-letter queue."""
