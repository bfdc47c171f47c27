"""Tasks: functions whose calls are messages. (In the making: payloads and retries so far.)"""
