"""What callers give and get; knows neither SQLite nor SQLAlchemy."""
