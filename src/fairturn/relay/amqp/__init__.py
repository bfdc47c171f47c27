"""RabbitMQ as a destination."""
