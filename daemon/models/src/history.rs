//! Makes a stored history fit to be sent: every call answered, nothing empty, foreign secrets of models dropped.
