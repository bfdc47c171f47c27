"""Programs of several processes: start them, replace those that die, stop them all."""
