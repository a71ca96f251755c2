// Blocks of attention for the tensor cores of compute capability 7.5: fragments of mma.m16n8k8 in
// float16 with float32 sums, tiles in shared memory that ldmatrix reads without bank conflicts, and
// what turns a product of a query and a key into a weight.
//
// Macros that the host defines (see source.py):
//   HEAD     head size, a multiple of 8
//   WIDTH    head size of the tiles, a multiple of 16, at most 128, or 192 or 256
//   THREADS  threads of a block
//   LEFT, RIGHT, SOFTCAP, BIAS (0: none, 1: mask of bool, 2: float16), ALIBI, RAGGED   0 or 1
//
// Fragments (PTX ISA, mma.m16n8k8): thread l holds of A [16 rows, 8] the rows l/4 and l/4 + 8 at the
// columns 2(l%4) and 2(l%4) + 1; of B [8, 8 columns] the column l/4 at these rows; of the sums
// [16, 8] what it holds of A. A fragment of sums, rounded to float16, is therefore one of A.

typedef unsigned int u32;
typedef unsigned short u16;

#define DEVICE_MEMBER __device__ __forceinline__
#define DEVICE static __device__ __forceinline__
#define INFINITY __int_as_float(0x7f800000)

constexpr float LOG2E = 1.4426950408889634f;
constexpr float LN2 = 0.6931471805599453f;
constexpr int CHUNKS = WIDTH / 8;                            // pieces of 16 bytes in a row
constexpr int PITCH = WIDTH % 64 ? WIDTH + 8 : WIDTH;        // elements from row to row

extern __shared__ __align__(128) u16 shared_memory[];

DEVICE int lane_id() { return threadIdx.x & 31; }

// The first element of a row of a head.
DEVICE u16* row_of(const Tensor& x, int batch, int head, i64 row) {
    return (u16*)x.data + batch * x.batch + head * x.head + row * x.row;
}

// The place of a piece of 16 bytes in a tile, in elements. Eight rows at one chunk lie in different
// banks: rows of a multiple of 128 bytes are swizzled, others are apart by an odd number of pieces.
DEVICE int place(int row, int chunk) {
    return row * PITCH + 8 * (WIDTH % 64 ? chunk : chunk ^ (row & 7));
}

// The address that a lane reads: of a row of a tile, the even chunk `fixed`, or with `more` the next.
DEVICE u32 address(const u16* tile, int row, int fixed, int more) {
    u32 at = (u32)__cvta_generic_to_shared(tile + row * PITCH);
    if (WIDTH % 64) return at + 16 * (fixed + more);
    // place() with what a compiler knows in front, so that it keeps four addresses for all chunks
    return at + ((fixed % 8 * 16) ^ ((more ^ (row & 7)) * 16)) + fixed / 8 * 128;
}

struct Four { u32 x[4]; };

DEVICE Four ldmatrix(u32 at) {
    Four r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.x[0]), "=r"(r.x[1]), "=r"(r.x[2]), "=r"(r.x[3]) : "r"(at) : "memory");
    return r;
}

DEVICE Four ldmatrix_transposed(u32 at) {
    Four r;
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r.x[0]), "=r"(r.x[1]), "=r"(r.x[2]), "=r"(r.x[3]) : "r"(at) : "memory");
    return r;
}

// A of 16 rows and 16 columns: the fragments of columns 0 to 7 are x[0] and x[1], then x[2], x[3].
DEVICE Four load_a(const u16* tile, int first_row, int step) {
    int l = lane_id();
    return ldmatrix(address(tile, first_row + (l & 15), 2 * step, l >> 4));
}

// B of 16 columns, which are rows of the tile, and 16 elements of their heads: of the columns 0 to
// 7 the fragments x[0] and x[1], of the others x[2] and x[3].
DEVICE Four load_b(const u16* tile, int first_row, int step) {
    int l = lane_id();
    return ldmatrix(address(tile, first_row + (l & 7) + 8 * (l >> 4), 2 * step, (l >> 3) & 1));
}

// B of 16 columns, which are elements of heads, over 16 rows of the tile: of the columns 0 to 7 the
// fragments x[0] and x[1], of the others x[2] and x[3].
DEVICE Four load_b_transposed(const u16* tile, int first_row, int step) {
    int l = lane_id();
    return ldmatrix_transposed(address(tile, first_row + (l & 15), 2 * step, l >> 4));
}

struct Sums { float x[4]; };

DEVICE void mma(Sums& d, u32 a0, u32 a1, u32 b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6},"
                 " {%0,%1,%2,%3};"
                 : "+f"(d.x[0]), "+f"(d.x[1]), "+f"(d.x[2]), "+f"(d.x[3])
                 : "r"(a0), "r"(a1), "r"(b));
}

DEVICE u32 pack(float low, float high) {
    u32 r;
    asm("{.reg .b16 l, h; cvt.rn.f16.f32 l, %1; cvt.rn.f16.f32 h, %2; mov.b32 %0, {l, h};}"
        : "=r"(r) : "f"(low), "f"(high));
    return r;
}

DEVICE float widen(u16 x) {
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x));
    return r;
}

DEVICE float exp2_(float x) {
    float r;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(x));
    return r;
}

// sums[n] += A x B for all columns n of a tile: A [16, 16] is one step of a product over heads.
template <int COLUMNS>
DEVICE void multiply(Sums (&sums)[COLUMNS / 8], const Four& a, const u16* tile, int step) {
    Four b[COLUMNS / 16];
#pragma unroll
    for (int n = 0; n < COLUMNS / 16; n++) b[n] = load_b(tile, 16 * n, step);
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int n = 0; n < COLUMNS / 8; n++)
            mma(sums[n], a.x[2 * half], a.x[2 * half + 1], b[n / 2].x[2 * (n % 2) + half]);
}

// sums[n] += A x B for all elements n of heads: A [16, 16] are weights of 16 rows of the tile.
DEVICE void gather(Sums (&sums)[WIDTH / 8], const Four& a, const u16* tile, int first_row) {
    constexpr int AT_ONCE = CHUNKS % 8 ? 2 : 4;
#pragma unroll
    for (int group = 0; group < CHUNKS / 2; group += AT_ONCE) {
        Four b[AT_ONCE];
#pragma unroll
        for (int n = 0; n < AT_ONCE; n++)
            if (group + n < CHUNKS / 2) b[n] = load_b_transposed(tile, first_row, group + n);
#pragma unroll
        for (int half = 0; half < 2; half++)
#pragma unroll
            for (int n = 0; n < 2 * AT_ONCE; n++)
                if (group + n / 2 < CHUNKS / 2)
                    mma(sums[2 * group + n], a.x[2 * half], a.x[2 * half + 1],
                        b[n / 2].x[2 * (n % 2) + half]);
    }
}

// Two fragments of sums [16, 8] each as A [16, 16] in float16.
DEVICE Four as_a(const Sums& first, const Sums& second) {
    return {pack(first.x[0], first.x[1]), pack(first.x[2], first.x[3]),
            pack(second.x[0], second.x[1]), pack(second.x[2], second.x[3])};
}

// A tile of ROWS rows on its way from global memory to shared memory, in registers meanwhile.
template <int ROWS>
struct Travelling {
    static constexpr int PIECES = ROWS * CHUNKS, EACH = (PIECES + THREADS - 1) / THREADS;
    uint4 x[EACH];

    // Rows from `there` on repeat the last one, which no weight but 0 meets.
    DEVICE_MEMBER void load(const u16* from, int stride, int there) {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int piece = threadIdx.x + i * THREADS, row = min(piece / CHUNKS, there - 1), chunk = piece % CHUNKS;
            if (THREADS % CHUNKS == 0) chunk = threadIdx.x % CHUNKS;
            const char* at = (const char*)from + 16 * chunk;
            if (HEAD == WIDTH || 8 * chunk < HEAD)
                x[i] = __ldg((const uint4*)(at + (i64)row * (2 * stride)));
            else
                x[i] = make_uint4(0, 0, 0, 0);
        }
    }

    DEVICE_MEMBER void store(u16* tile) const {
#pragma unroll
        for (int i = 0; i < EACH; i++) {
            int piece = threadIdx.x + i * THREADS;
            if (PIECES % THREADS == 0 || piece < PIECES)
                *(uint4*)(tile + place(piece / CHUNKS, piece % CHUNKS)) = x[i];
        }
    }
};

// Where the rows of one sequence and head begin, and how many there are.
struct Sequence {
    int queries, keys, shift;
    i64 first_query, first_key;   // in a ragged batch
    int batch;                    // 0 in a ragged batch

    DEVICE_MEMBER Sequence(const Problem& p, int number) {
        queries = p.seq_q, keys = p.seq_k, first_query = first_key = 0, batch = number;
#if RAGGED
        first_query = p.starts_q[number], first_key = p.starts_k[number], batch = 0;
        queries = p.starts_q[number + 1] - (int)first_query;
        keys = p.starts_k[number + 1] - (int)first_key;
#endif
        shift = keys - queries;
    }

    // Whether all keys from `key` to `key + keys - 1` are seen by all queries of a range.
    DEVICE_MEMBER bool sees_all(const Problem& p, int query, int queries_, int key, int keys_) const {
        bool all = key + keys_ <= keys && query + queries_ <= queries;
#if RIGHT
        all = all && key + keys_ - 1 <= query + shift + p.right;
#endif
#if LEFT
        all = all && key >= query + queries_ - 1 + shift - p.left;
#endif
        return all;
    }

    DEVICE_MEMBER bool sees(const Problem& p, int query, int key) const {
        bool seen = key < keys && query < queries;
#if RIGHT
        seen = seen && key <= query + shift + p.right;
#endif
#if LEFT
        seen = seen && key >= query + shift - p.left;
#endif
        return seen;
    }
};

// What a score is, to base 2, from the product of a query and a key; `slope` is the derivative of
// the score by the product over `scale`, without the softcap 1.
#if SOFTCAP || BIAS || ALIBI
#define IS_CHANGED 1
struct Change {
    const unsigned char* bias;
    float tilt;

    DEVICE_MEMBER Change(const Problem& p, int batch, int head) {
        bias = (const unsigned char*)p.bias.data + (BIAS == 2 ? 2 : 1) * (batch * p.bias.batch + head * p.bias.head);
        tilt = ALIBI ? LOG2E * p.slopes[batch * p.slopes_batch + head] : 0.f;
    }

    DEVICE_MEMBER float score(const Problem& p, const Sequence& s, float product, int query, int key, float& slope) const {
        float x = product * p.factor;
        slope = 1.f;
#if SOFTCAP
        // tanh(x) = 1 - 2 / (exp(2 x) + 1): the instruction for tanh is exact to 11 bits only
        float bent = 1.f - __fdividef(2.f, exp2_(2.f * LOG2E * fabsf(x)) + 1.f);
        bent = copysignf(fabsf(x) > 40.f ? 1.f : bent, x);
        slope = 1.f - bent * bent;
        x = p.softcap * LOG2E * bent;
#endif
#if ALIBI
        x += tilt * (float)(key - query - s.shift);
#endif
#if BIAS
        if (query < s.queries && key < s.keys) {
            i64 at = query * p.bias.row + key * p.bias_element;
#if BIAS == 1
            if (!bias[at]) x = -INFINITY;
#else
            x += LOG2E * widen(((const u16*)bias)[at]);
#endif
        }
#endif
        return x;
    }
};
#else
#define IS_CHANGED 0
#endif
