"""Those who watch a run: they are told rare events, read figures by themselves, and change nothing."""
