"""The databases against the model: the same calls at the same instants, compared after each."""
