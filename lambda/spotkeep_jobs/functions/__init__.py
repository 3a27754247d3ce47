"""How a Lambda function is put together: its settings, its clients, its traces."""
