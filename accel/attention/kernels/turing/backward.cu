// The backward pass without atomic additions, so that gradients are the same every time: one kernel
// sums dk and dv of a tile of keys over the queries, another sums dq of a tile of queries over the
// keys. Both recompute the weights from lse.
//
//   P = exp2(score - lse), dP = dout v^T, dS = P (dP - delta) slope, delta = sum(dout out) - dlse
//   dv = P^T dout, dk = scale dS^T q, dq = scale dS k
//
// Source: FlashAttention (arXiv 2205.14135), section B.2.

// lse to base 2; a row that sees no key has weights of 0.
DEVICE float in_base_2(float lse) { return lse == -INFINITY ? INFINITY : lse * LOG2E; }

// The weight of a pair and, in `slope`, the derivative of its score.
#if IS_CHANGED
#define WEIGHT(product, query, key, lse, slope) exp2_(change.score(p, s, product, query, key, slope) - (lse))
#else
#define WEIGHT(product, query, key, lse, slope) exp2_((product) * p.factor - (lse))
#endif

DEVICE void clear(Sums* sums, int n) {
#pragma unroll
    for (int i = 0; i < n; i++) sums[i] = {0.f, 0.f, 0.f, 0.f};
}

// Writes the sums of 16 rows, times a factor.
DEVICE void write(u16* to, i64 stride, const Sums (&sums)[WIDTH / 8], int there, float by) {
    int lane = lane_id();
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = lane / 4 + 8 * h;
        if (row >= there) continue;
#pragma unroll
        for (int i = 0; i < WIDTH / 8; i++)
            if (HEAD == WIDTH || 8 * i < HEAD)
                *(u32*)(to + row * stride + 8 * i + 2 * (lane % 4)) = pack(sums[i].x[2 * h] * by, sums[i].x[2 * h + 1] * by);
    }
}

#ifdef DELTA
// delta of each row: a warp takes one row.
extern "C" __global__ void __launch_bounds__(THREADS) attention_delta(const __grid_constant__ Problem p) {
    i64 number = (i64)blockIdx.x * (THREADS / 32) + threadIdx.x / 32;
    int row = number % p.seq_q, unit = number / p.seq_q, head = unit % p.heads, batch = unit / p.heads;
    if (batch >= p.batch) return;
    const u16 *o = row_of(p.out, batch, head, row), *d = row_of(p.dout, batch, head, row);
    float sum = 0.f;
    for (int i = lane_id(); i < HEAD; i += 32) sum += widen(o[i]) * widen(d[i]);
#pragma unroll
    for (int far = 16; far; far /= 2) sum += __shfl_xor_sync(~0u, sum, far);
    if (lane_id() == 0) p.delta[number] = sum - (p.dlse ? p.dlse[number] : 0.f);
}
#endif

#ifdef KEYS_SIDE
// dk and dv of THREADS / 2 keys, 16 of them a warp. The products are transposed, keys x queries, so
// that the weights are fragments of A for both sums. The keys' values stay in registers.
constexpr int ROWS = THREADS / 2;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_keys(const __grid_constant__ Problem p) {
    int tiles = (p.longest_k + ROWS - 1) / ROWS;
    int tile = blockIdx.x % tiles, unit = blockIdx.x / tiles;
    int kv_heads = p.heads / p.group, kv_head = unit % kv_heads, number = unit / kv_heads;
    Sequence s(p, number);
    int first = tile * ROWS;
    if (first >= s.keys) return;
    int warp = threadIdx.x / 32, lane = lane_id();
    int key = first + 16 * warp;

    u16 *keys = shared_memory, *stages = keys + ROWS * PITCH;

    // the queries that see any of these keys
    int begin = 0, end = s.queries;
#if RIGHT
    begin = max(0, first - s.shift - p.right) / QUERIES * QUERIES;
#endif
#if LEFT
    end = min(end, max(0, min(first + ROWS, s.keys) - s.shift + p.left));
#endif
    int query = begin, member = begin < end ? 0 : p.group;  // the step that is computed next

    Travelling<ROWS> given;
    given.load(row_of(p.v, s.batch, kv_head, s.first_key + first), p.v.row, s.keys - first);
    given.store(keys);
    __syncthreads();
    Four values[WIDTH / 16];
#pragma unroll
    for (int i = 0; i < WIDTH / 16; i++) values[i] = load_a(keys, 16 * warp, i);
    __syncthreads();
    given.load(row_of(p.k, s.batch, kv_head, s.first_key + first), p.k.row, s.keys - first);
    given.store(keys);

    Sums dk[WIDTH / 8], dv[WIDTH / 8];
    clear(dk, WIDTH / 8), clear(dv, WIDTH / 8);

    Travelling<QUERIES> next;
    float next_lse, next_delta;  // of the query of this lane
    auto load = [&](const Tensor& x, int query, int member) {
        next.load(row_of(x, s.batch, kv_head * p.group + member, s.first_query + query), x.row, s.queries - query);
    };
    auto load_sums = [&](int query, int member) {
        bool there = lane < QUERIES && query + lane < s.queries;
        i64 row = ((i64)s.batch * p.heads + kv_head * p.group + member) * p.seq_q + s.first_query + query + lane;
        next_lse = there ? in_base_2(p.lse[row]) : INFINITY;
        next_delta = there ? p.delta[row] : 0.f;
    };
    if (member < p.group) {
        load(p.q, query, member);
        next.store(stages);
        load(p.dout, query, member);
        next.store(stages + QUERIES * PITCH);
        load_sums(query, member);
    }
    __syncthreads();
    int turn = 0;
    while (member < p.group) {
        u16 *q = stages + turn * 2 * QUERIES * PITCH, *dout = q + QUERIES * PITCH;
        u16* free = stages + (turn ^ 1) * 2 * QUERIES * PITCH;
        float lse = next_lse, delta = next_delta;
        int next_query = query + QUERIES, next_member = member;
        if (next_query >= end) next_query = begin, next_member++;
        bool more = next_member < p.group;
        if (more) load(p.q, next_query, next_member), load_sums(next_query, next_member);
#if IS_CHANGED
        Change change(p, number, kv_head * p.group + member);
#endif
        Sums scores[QUERIES / 8], products[QUERIES / 8];
        clear(scores, QUERIES / 8), clear(products, QUERIES / 8);
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++) multiply<QUERIES>(scores, load_a(keys, 16 * warp, i), q, i);
        int row = key + lane / 4, own = 2 * (lane % 4), column = query + own;
        float slopes[QUERIES / 2];
#pragma unroll
        for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float its = __shfl_sync(~0u, lse, own + 8 * n + e % 2);
                scores[n].x[e] = WEIGHT(scores[n].x[e], column + 8 * n + e % 2, row + 8 * (e / 2), its, slopes[4 * n + e]);
            }
        if (!s.sees_all(p, query, QUERIES, key, 16)) {
#pragma unroll
            for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (!s.sees(p, column + 8 * n + e % 2, row + 8 * (e / 2))) scores[n].x[e] = 0.f;
        }
#pragma unroll
        for (int n = 0; n < QUERIES / 16; n++) gather(dv, as_a(scores[2 * n], scores[2 * n + 1]), dout, 16 * n);
        if (more) next.store(free), load(p.dout, next_query, next_member);
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++) multiply<QUERIES>(products, values[i], dout, i);
#pragma unroll
        for (int n = 0; n < QUERIES / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                float its = __shfl_sync(~0u, delta, own + 8 * n + e % 2);
                products[n].x[e] = scores[n].x[e] * (products[n].x[e] - its);
#if SOFTCAP
                products[n].x[e] *= slopes[4 * n + e];
#endif
            }
#pragma unroll
        for (int n = 0; n < QUERIES / 16; n++) gather(dk, as_a(products[2 * n], products[2 * n + 1]), q, 16 * n);
        if (more) next.store(free + QUERIES * PITCH);
        __syncthreads();
        query = next_query, member = next_member, turn ^= 1;
    }
    i64 at = s.first_key + key;
    write(row_of(p.dk, s.batch, kv_head, at), p.dk.row, dk, s.keys - key, p.scale);
    write(row_of(p.dv, s.batch, kv_head, at), p.dv.row, dv, s.keys - key, 1.f);
}
#endif

#ifdef QUERIES_SIDE
// dq of THREADS / 2 queries, 16 of them a warp, over tiles of KEYS keys. Queries and dout stay in
// registers.
constexpr int ROWS = THREADS / 2;

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS) attention_queries(const __grid_constant__ Problem p) {
    int tiles = (p.longest_q + ROWS - 1) / ROWS;
    int tile = blockIdx.x % tiles, unit = blockIdx.x / tiles;
    int head = unit % p.heads, number = unit / p.heads;
    if (RIGHT) tile = tiles - 1 - tile;  // the longest first
    Sequence s(p, number);
    int first = tile * ROWS;
    if (first >= s.queries) return;
    int warp = threadIdx.x / 32, lane = lane_id();
    int query = first + 16 * warp;

    u16 *stages = shared_memory;
    i64 at = s.first_query + first;
    const u16* k = row_of(p.k, s.batch, head / p.group, s.first_key);
    const u16* v = row_of(p.v, s.batch, head / p.group, s.first_key);
#if IS_CHANGED
    Change change(p, number, head);
#endif

    int begin = 0, end = s.keys;
#if RIGHT
    end = min(end, max(0, min(first + ROWS, s.queries) + s.shift + p.right));
#endif
#if LEFT
    begin = max(0, first + s.shift - p.left) / KEYS * KEYS;
#endif

    Four kept[WIDTH / 16], douts[WIDTH / 16];
    Travelling<ROWS> given;
    given.load(row_of(p.q, s.batch, head, at), p.q.row, s.queries - first);
    given.store(stages);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WIDTH / 16; i++) kept[i] = load_a(stages, 16 * warp, i);
    __syncthreads();
    given.load(row_of(p.dout, s.batch, head, at), p.dout.row, s.queries - first);
    given.store(stages);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < WIDTH / 16; i++) douts[i] = load_a(stages, 16 * warp, i);
    __syncthreads();

    float lse[2], delta[2];
#pragma unroll
    for (int h = 0; h < 2; h++) {
        int row = query + lane / 4 + 8 * h;
        i64 place_ = ((i64)s.batch * p.heads + head) * p.seq_q + s.first_query + row;
        lse[h] = row < s.queries ? in_base_2(p.lse[place_]) : INFINITY;
        delta[h] = row < s.queries ? p.delta[place_] : 0.f;
    }
    Sums dq[WIDTH / 8];
    clear(dq, WIDTH / 8);

    Travelling<KEYS> next;
    if (begin < end) {
        next.load(k + (i64)begin * p.k.row, p.k.row, s.keys - begin);
        next.store(stages);
        next.load(v + (i64)begin * p.v.row, p.v.row, s.keys - begin);
        next.store(stages + KEYS * PITCH);
    }
    __syncthreads();
    int turn = 0;
    for (int key = begin; key < end; key += KEYS, turn ^= 1) {
        u16 *keys = stages + turn * 2 * KEYS * PITCH, *values = keys + KEYS * PITCH;
        u16 *free = stages + (turn ^ 1) * 2 * KEYS * PITCH;
        bool more = key + KEYS < end;
        if (more) next.load(k + (key + KEYS) * p.k.row, p.k.row, s.keys - key - KEYS);

        Sums scores[KEYS / 8], products[KEYS / 8];
        clear(scores, KEYS / 8), clear(products, KEYS / 8);
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++) multiply<KEYS>(scores, kept[i], keys, i);
        if (more) {
            next.store(free);
            next.load(v + (key + KEYS) * p.v.row, p.v.row, s.keys - key - KEYS);
        }
#pragma unroll
        for (int i = 0; i < WIDTH / 16; i++) multiply<KEYS>(products, douts[i], values, i);
        int row = query + lane / 4, column = key + 2 * (lane % 4);
        float slopes[KEYS / 2];
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                scores[n].x[e] = WEIGHT(scores[n].x[e], row + 8 * (e / 2), column + 8 * n + e % 2, lse[e / 2], slopes[4 * n + e]);
        if (!s.sees_all(p, query, 16, key, KEYS)) {
#pragma unroll
            for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    if (!s.sees(p, row + 8 * (e / 2), column + 8 * n + e % 2)) scores[n].x[e] = 0.f;
        }
#pragma unroll
        for (int n = 0; n < KEYS / 8; n++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                scores[n].x[e] *= products[n].x[e] - delta[e / 2];
#if BIAS_GRAD
                int at_row = row + 8 * (e / 2), at_key = column + 8 * n + e % 2;
                if (at_row < s.queries && at_key < s.keys)
                    p.dbias[(((i64)number * p.heads + head) * p.seq_q + at_row) * p.seq_k + at_key] = scores[n].x[e];
#endif
#if SOFTCAP
                scores[n].x[e] *= slopes[4 * n + e];
#endif
            }
#pragma unroll
        for (int n = 0; n < KEYS / 16; n++) gather(dq, as_a(scores[2 * n], scores[2 * n + 1]), keys, 16 * n);
        if (more) next.store(free + KEYS * PITCH);
        __syncthreads();
    }
    write(row_of(p.dq, s.batch, head, at + 16 * warp), p.dq.row, dq, s.queries - query, p.scale);
}
#endif
