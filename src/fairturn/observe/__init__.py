"""Log records, metrics and traces of Fairturn's programs."""
