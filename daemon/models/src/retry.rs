//! Whether and when to try a model request again (pure).
