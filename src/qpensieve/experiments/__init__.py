"""The paper as plans: every table and figure, run anywhere, resumed, reported."""
