/* A program that fills memory of a GPU, changes a part of it step by step, and sums all of it up.
 *
 *     programs GIB STOP LIMIT SEED
 *
 * It prints "ready" once the memory is filled. It ends after LIMIT steps, or once the file STOP is
 * there if LIMIT is 0, and prints the steps and the sum. */
#include <cstdio>
#include <cstdlib>
#include <unistd.h>

typedef unsigned long long u64;

#define CHECK(call)                                                                    \
    do {                                                                               \
        cudaError_t code = (call);                                                     \
        if (code != cudaSuccess) {                                                     \
            printf("failed: %s\n", cudaGetErrorString(code));                          \
            return 1;                                                                  \
        }                                                                              \
    } while (0)

__global__ void fill(u64 *x, size_t n, u64 seed) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        x[i] = (i + 1) * 0x9E3779B97F4A7C15ull + seed;
}

__global__ void advance(u64 *x, size_t n) {
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x) {
        u64 v = x[i];
        v ^= v << 13;
        v ^= v >> 7;
        v ^= v << 17;
        x[i] = v;
    }
}

__global__ void add(const u64 *x, size_t n, u64 *sum) {
    u64 own = 0;
    for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < n; i += size_t(gridDim.x) * blockDim.x)
        own += x[i] ^ i;
    atomicAdd(sum, own);  // integers: the order does not matter
}

int main(int argc, char **argv) {
    size_t n = size_t(atof(argv[1]) * (1 << 27));
    const char *stop = argv[2];
    long limit = atol(argv[3]), steps = 0;
    u64 *x, *sum, found = 0;
    CHECK(cudaMalloc(&x, n * sizeof(u64)));
    CHECK(cudaMalloc(&sum, sizeof(u64)));
    CHECK(cudaMemset(sum, 0, sizeof(u64)));
    fill<<<1024, 256>>>(x, n, strtoull(argv[4], nullptr, 10));
    CHECK(cudaDeviceSynchronize());
    printf("ready\n");
    fflush(stdout);
    size_t part = n < (1 << 20) ? n : 1 << 20;
    while (limit ? steps < limit : access(stop, F_OK) != 0) {
        advance<<<256, 256>>>(x, part);
        CHECK(cudaDeviceSynchronize());
        steps++;
        if (!limit) usleep(2000);
    }
    add<<<1024, 256>>>(x, n, sum);
    CHECK(cudaMemcpy(&found, sum, sizeof found, cudaMemcpyDeviceToHost));
    printf("%ld %llx\n", steps, found);
    return 0;
}
