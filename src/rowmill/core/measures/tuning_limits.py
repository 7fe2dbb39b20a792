"""How far a measurement goes where the user does not say."""

STEP_S = 20.0
MOST_IN_FLIGHT = 500
