"""The shapes of the small models that are timed: of about one and five million parameters."""

from course_lib.model import ModelConfig

ONE_MILLION = ModelConfig(
    vocab_size=1024, n_layers=2, d_model=192, n_heads=6, n_kv_heads=2, head_dim=32, d_ff=512, max_positions=1024
)
FIVE_MILLION = ModelConfig(
    vocab_size=4096, n_layers=4, d_model=288, n_heads=9, n_kv_heads=3, head_dim=32, d_ff=768, max_positions=1024
)
