/* The small functions of rows, between products: norm, rotation, gate.  Included by linear.h. */

static void SUFFIX(norm)(const float *x, const float *weight, float offset, float eps, int32_t size,
                         const float *more, float *out)
{
    vec squares = splat(0);
    float rest = 0;
    int32_t k = 0;
    for (; k + SIMD <= size; k += SIMD) {
        vec value = *(const loose_vec *)(x + k);
        squares += value * value;
    }
    for (; k < size; k++)
        rest += x[k] * x[k];
    const float scale = 1 / sqrtf((sum_of(squares) + rest) / (float)size + eps);
    for (k = 0; k + SIMD <= size; k += SIMD) {
        vec value = *(const loose_vec *)(x + k) * scale * (*(const loose_vec *)(weight + k) + offset);
        store(out + k, more == NULL ? value : value + *(const loose_vec *)(more + k));
    }
    for (; k < size; k++)
        out[k] = x[k] * scale * (weight[k] + offset) + (more == NULL ? 0 : more[k]);
}

/* Pairs (i, i + size / 2) by the angles of cosines and sines [size / 2]. */
static void SUFFIX(rotate)(float *x, const float *cosines, const float *sines, int32_t size)
{
    const int32_t half = size / 2;
    int32_t i = 0;
    for (; i + SIMD <= half; i += SIMD) {
        vec first = *(const loose_vec *)(x + i), second = *(const loose_vec *)(x + half + i);
        vec cosine = *(const loose_vec *)(cosines + i), sine = *(const loose_vec *)(sines + i);
        store(x + i, first * cosine - second * sine);
        store(x + half + i, second * cosine + first * sine);
    }
    for (; i < half; i++) {
        float first = x[i], second = x[half + i];
        x[i] = first * cosines[i] - second * sines[i];
        x[half + i] = second * cosines[i] + first * sines[i];
    }
}

INLINE vec activated(vec x, enum activation activation)
{
    switch (activation) {
    case SILU: { /* e^88 is near the largest float, and x / e^88 nothing beside it */
        vec most = choose(x < splat(-88.0f), splat(88.0f), -x);
        return x / (splat(1.0f) + exponential(choose(x < splat(-88.0f), most, -x)));
    }
    case GELU_TANH: {
        vec inner = splat(0.7978845608028654f) * (x + splat(0.044715f) * x * x * x);
        return splat(0.5f) * x * (splat(1.0f) + hyperbolic_tangent(inner));
    }
    case GELU:
        for (int i = 0; i < SIMD; i++)
            x[i] = 0.5f * x[i] * (1.0f + erff(x[i] * 0.70710678118654752f));
        return x;
    default:
        return choose((veci)(x <= splat(0)), splat(0), x);
    }
}

INLINE void gate_as(const float *gate_up, int32_t size, float *out, enum activation activation)
{
    int32_t i = 0;
    for (; i + SIMD <= size; i += SIMD)
        store(out + i, activated(*(const loose_vec *)(gate_up + i), activation) *
                           *(const loose_vec *)(gate_up + size + i));
    if (i < size) {
        vec rest = splat(0);
        memcpy(&rest, gate_up + i, sizeof(float) * (size_t)(size - i));
        rest = activated(rest, activation);
        for (int32_t k = i; k < size; k++)
            out[k] = rest[k - i] * gate_up[size + k];
    }
}

static void SUFFIX(gate)(const float *gate_up, int32_t size, int32_t activation, float *out)
{
    switch (activation) {
    case SILU:
        gate_as(gate_up, size, out, SILU);
        break;
    case GELU_TANH:
        gate_as(gate_up, size, out, GELU_TANH);
        break;
    case GELU:
        gate_as(gate_up, size, out, GELU);
        break;
    default:
        gate_as(gate_up, size, out, RELU);
    }
}
