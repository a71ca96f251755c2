// The forward pass: a block computes ROWS queries of one head, each warp 16 of them, over tiles of
// KEYS keys. Queries (where QUERIES_KEPT) and sums stay in registers; the next tile of keys or values
// travels through registers while the present one is multiplied.
//
// Source: FlashAttention-2 (arXiv 2307.08691) for the order of the loops and the running maximum.

constexpr int ROWS = THREADS / 2;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_forward(const __grid_constant__ Problem p) {
    int tiles = (p.longest_q + ROWS - 1) / ROWS;
    int tile = blockIdx.x % tiles, unit = blockIdx.x / tiles;
    int head = unit % p.heads, number = unit / p.heads;
    if (RIGHT) tile = tiles - 1 - tile;  // the longest first
    Sequence s(p, number);
    int first = tile * ROWS;
    if (first >= s.queries) return;
    int warp = threadIdx.x / 32, lane = lane_id();
    int query = first + 16 * warp;       // the warp's first one

    u16 *keys = shared_memory, *values = keys + KEYS * PITCH, *queries = QUERIES_KEPT ? keys : values + KEYS * PITCH;
    const u16* k = row_of(p.k, s.batch, head / p.group, s.first_key);
    const u16* v = row_of(p.v, s.batch, head / p.group, s.first_key);
#if IS_CHANGED
    Change change(p, number, head);
    const float factor = 1.f;
#else
    const float factor = p.factor;
#endif

    int begin = 0, end = s.keys;
#if RIGHT
    end = min(end, max(0, min(first + ROWS, s.queries) + s.shift + p.right));
#endif
#if LEFT
    begin = max(0, first + s.shift - p.left) / KEYS * KEYS;
#endif

    {
        Travelling<ROWS> given;
        given.load(row_of(p.q, s.batch, head, s.first_query + first), p.q.row, s.queries - first);
        given.store(queries);
    }
    __syncthreads();
#if QUERIES_KEPT
    Four kept[WIDTH / 16];
#pragma unroll
    for (int i = 0; i < WIDTH / 16; i++) kept[i] = load_a(queries, 16 * warp, i);
    __syncthreads();
#endif

    Sums out[WIDTH / 8];
    float most[2] = {-INFINITY, -INFINITY}, total[2] = {0.f, 0.f};
#pragma unroll
    for (int i = 0; i < WIDTH / 8; i++) out[i] = {0.f, 0.f, 0.f, 0.f};

    Travelling<KEYS> next;
    if (begin < end) {
        next.load(k + (i64)begin * p.k.row, p.k.row, s.keys - begin);
        next.store(keys);
        next.load(v + (i64)begin * p.v.row, p.v.row, s.keys - begin);
    }
    for (int key = begin; key < end; key += KEYS) {
        bool more = key + KEYS < end;
        next.store(values);
        __syncthreads();  // the keys are there
        if (more) next.load(k + (key + KEYS) * p.k.row, p.k.row, s.keys - key - KEYS);

        Sums scores[KEYS / 8];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++) scores[n] = {0.f, 0.f, 0.f, 0.f};
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++)
#if QUERIES_KEPT
            multiply<KEYS>(scores, kept[i], keys, i);
#else
            multiply<KEYS>(scores, load_a(queries, 16 * warp, i), keys, i);
#endif

        int row = query + lane / 4, column = key + 2 * (lane % 4);
#if IS_CHANGED
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float slope;
                scores[n].x[e] = change.score(p, s, scores[n].x[e], row + 8 * (e / 2), column + 8 * n + e % 2, slope);
            }
#endif
        if (!s.sees_all(p, query, 16, key, KEYS)) {
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (!s.sees(p, row + 8 * (e / 2), column + 8 * n + e % 2)) scores[n].x[e] = -INFINITY;
        }
        float shrink[2], base[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            float top = most[h];
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++) top = fmaxf(top, fmaxf(scores[n].x[2 * h], scores[n].x[2 * h + 1]));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
            top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
            base[h] = top == -INFINITY ? 0.f : top * factor;
            shrink[h] = exp2_(most[h] * factor - base[h]);
            most[h] = top;
            total[h] *= shrink[h];
        }
        Four weights[KEYS / 16];
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) {
#pragma unroll
            for (int m = 2 * n; m < 2 * n + 2; m++)
#pragma unroll
                for (int e = 0; e < 4; e++) {
                    scores[m].x[e] = exp2_(scores[m].x[e] * factor - base[e / 2]);
                    total[e / 2] += scores[m].x[e];
                }
            weights[n] = as_a(scores[2 * n], scores[2 * n + 1]);
        }
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++)
#pragma unroll
            for (int e = 0; e < 4; e++) out[i].x[e] *= shrink[e / 2];

        __syncthreads();  // the values are there, and nobody reads the keys any more
        if (more) {
            next.store(keys);
            next.load(v + (key + KEYS) * p.v.row, p.v.row, s.keys - key - KEYS);
        }
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) gather(out, weights[n], values, 16 * n);
        __syncthreads();  // nobody reads the values any more
    }

    u16* o = row_of(p.out, s.batch, head, s.first_query + query);
    float* lse = p.lse + ((i64)s.batch * p.heads + head) * p.seq_q + s.first_query + query;
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = lane / 4 + 8 * h;
        total[h] += __shfl_xor_sync(~0u, total[h], 1);
        total[h] += __shfl_xor_sync(~0u, total[h], 2);
        if (query + row >= s.queries) continue;
        bool blind = total[h] == 0.f;
        float by = blind ? 0.f : 1.f / total[h];
        if (lane % 4 == 0) lse[row] = blind ? -INFINITY : LN2 * most[h] * factor + __logf(total[h]);
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++)
            if (HEAD == WIDTH || 8 * i < HEAD)
                *(u32*)(o + row * p.out.row + 8 * i + 2 * (lane % 4)) = pack(out[i].x[2 * h] * by, out[i].x[2 * h + 1] * by);
    }
}
