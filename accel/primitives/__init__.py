"""Operations that models are built of besides attention, each with a reference and kernels."""
