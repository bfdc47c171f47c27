"""Tasks: functions whose calls are sent as messages."""
