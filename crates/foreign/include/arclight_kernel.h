/* Micro-kernels for Arclight that are written elsewhere.
 *
 * A shared object has one symbol, `arclight_kernels`, with a list of kernels. `--kernel FILE.so` loads it. Each
 * kernel multiplies matrices of one type, a tile of some rows by some tokens at a time. Arclight does the rest:
 * threads, slices, sums over memory nodes.
 *
 * Results must have the bits of Arclight's own kernels, which are compared when the file is loaded: an answer is
 * the same whichever kernel has made it, and whatever else is in a step. The arithmetic below makes that easy,
 * because all that is summed in another order are integers. Do not build with -ffast-math, which reorders floats.
 *
 * docs/extending.md says how to build and use one; examples/kernel has one.
 */
#ifndef ARCLIGHT_KERNEL_H
#define ARCLIGHT_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of all that follows. */
#define ARCLIGHT_KERNEL_VERSION 1

/* Rows of a packed tile, columns of a block. */
#define ARCLIGHT_ROWS 16
#define ARCLIGHT_COLS 32

/* 32 activations of one token: activation c is about scale * quants[c]. */
typedef struct arclight_acts {
    int8_t quants[ARCLIGHT_COLS]; /* -127 to 127 */
    float scale;
    uint32_t unused_1;
    int32_t minus_8_sum; /* -8 times the sum of the quants */
    uint32_t unused_2[2];
    int32_t minus_128_sum; /* -128 times the sum of the quants */
    uint32_t unused_3[2];
} arclight_acts;

/* Packed tiles. A tile has 16 rows, of which blocks of 32 columns are packed by twos, in a group; of an odd number
 * of blocks the last group has one, and the scales of the other are not used.
 *
 * Q8_0, 1088 bytes a group (the last: 576, if it has one block): weight = scale * (quants - 128).
 * Q4_0,  576 bytes a group (the last: 320): weight = scale * (nibble - 8). In byte [j][r][i] the lower four bits
 * are column 4j + i of row r, the upper four column 16 + 4j + i.
 *
 * Scales are half floats (IEEE 754 binary16).
 */
typedef struct arclight_q8_0 {
    uint16_t scales[2][ARCLIGHT_ROWS];
    uint8_t quants[2][8][ARCLIGHT_ROWS][4]; /* [block][j][r][i]: column 4j + i of row r */
} arclight_q8_0;

typedef struct arclight_q4_0 {
    uint16_t scales[2][ARCLIGHT_ROWS];
    uint8_t nibbles[2][4][ARCLIGHT_ROWS][4];
} arclight_q4_0;

/* What is to be multiplied: for each token t, tile i and row r of it,
 *
 *   sum = 0.0f
 *   for b in 0..blocks, in this order:
 *       integer = the sum of (quant - 128) * activation quant, or (nibble - 8) * ..., over the 32 columns of b
 *       sum = fmaf((float)integer, scale of the row's block b * acts[t][b].scale, sum)
 *   results[(t * tiles + i) * 16 + r] = sum
 *
 * Integers are exact. The product of the scales is rounded once to a float, and the fma once.
 */
typedef struct arclight_product {
    const void *const *weights;       /* [tiles]: where each packed tile begins, a multiple of 2 */
    const arclight_acts *const *acts; /* [tokens]: the token's blocks, at a multiple of 4 */
    float *results;                   /* [tokens][tiles][16], not initialised */
    size_t tiles;                     /* at least 1, at most rows / 16 of the kernel */
    size_t tokens;                    /* at least 1, at most the tokens of the kernel */
    size_t blocks;                    /* of 32 columns, at least 1 */
    size_t ahead;                     /* so many bytes beyond the weights at hand are worth a prefetch; 0: nowhere */
} arclight_product;

typedef struct arclight_kernel {
    const char *name;         /* what it is called in profiles: up to 64 of a-z A-Z 0-9 . _ - */
    const char *type;         /* of the weights: "Q8_0" or "Q4_0" */
    const char *instructions; /* what the CPU must have, as ARCLIGHT_ISA calls it: "avx2" is AVX2, FMA and F16C,
                                 "avx512vnni" AVX-512 F, BW, DQ, VL and VNNI; "scalar" is on any. A CPU with more
                                 has these as well. */
    uint32_t rows;            /* that it takes at once: 16 or a multiple, up to 128 */
    uint32_t tokens;          /* that it takes at once: rows * tokens is 1024 at most */
    /* Many threads call it at the same time. It must not keep anything, wait, allocate or throw. */
    void (*multiply)(const arclight_product *product);
} arclight_kernel;

typedef struct arclight_kernel_list {
    uint32_t version; /* ARCLIGHT_KERNEL_VERSION */
    uint32_t count;   /* 1 to 64 */
    const arclight_kernel *kernels;
} arclight_kernel_list;

/* What a shared object defines. */
#if defined(__GNUC__)
__attribute__((visibility("default")))
#endif
extern const arclight_kernel_list arclight_kernels;

#ifdef __cplusplus
}
#endif

#endif
