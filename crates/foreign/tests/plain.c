/* Kernels for Q8_0 and Q4_0 in plain C, word for word as arclight_kernel.h defines products. What is wrong with one
 * is said by WRONG, and by the macros below. */
#include "arclight_kernel.h"

#include <math.h>
#include <string.h>

#ifndef NAME
#define NAME "plain"
#endif
#ifndef TYPE
#define TYPE "Q8_0"
#endif
#ifndef INSTRUCTIONS
#define INSTRUCTIONS "scalar"
#endif
#ifndef ROWS
#define ROWS 32
#endif
#ifndef TOKENS
#define TOKENS 3
#endif
#ifndef VERSION
#define VERSION ARCLIGHT_KERNEL_VERSION
#endif
#ifndef COUNT
#define COUNT (sizeof list / sizeof *list)
#endif
#ifndef MULTIPLY
#define MULTIPLY multiply_q8_0
#endif
#ifndef WRONG
#define WRONG 0
#endif

_Static_assert(sizeof(arclight_acts) == 64, "activations of 32 columns");
_Static_assert(sizeof(arclight_q8_0) == 1088 && sizeof(arclight_q4_0) == 576, "groups");

static float widened(uint16_t half) {
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    float size = exponent == 0    ? ldexpf(mantissa, -24)
                 : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                  : ldexpf(1024 + mantissa, exponent - 25);
    return half & 0x8000 ? -size : size;
}

/* Weight c of row r, without its scale. */
static int weight_q8_0(const void *tile, size_t b, int r, int c) {
    const arclight_q8_0 *group = (const arclight_q8_0 *)tile + b / 2;
    return group->quants[b % 2][c / 4][r][c % 4] - 128;
}

static int weight_q4_0(const void *tile, size_t b, int r, int c) {
    const arclight_q4_0 *group = (const arclight_q4_0 *)tile + b / 2;
    uint8_t both = group->nibbles[b % 2][c % 16 / 4][r][c % 4];
    return (c < 16 ? both & 15 : both >> 4) - 8;
}

static void multiply(const arclight_product *p, int (*weight)(const void *, size_t, int, int), size_t group) {
    float sum;
#if WRONG == 1
    static int calls; /* something is kept */
    calls++;
#endif
    for (size_t t = 0; t < p->tokens; t++)
        for (size_t i = 0; i < p->tiles; i++)
            for (int r = 0; r < 16; r++) {
                sum = 0;
                for (size_t at = 0; at < p->blocks; at++) {
#if WRONG == 2
                    size_t b = p->blocks - 1 - at; /* in another order */
#else
                    size_t b = at;
#endif
                    int integer = 0;
                    for (int c = 0; c < 32; c++)
                        integer += weight(p->weights[i], b, r, c) * p->acts[t][b].quants[c];
#if WRONG == 3
                    /* As pairs in 16 bits, which do not hold it. */
                    if (integer > 32767) integer = 32767;
#endif
                    const uint16_t *scales = (const uint16_t *)((const char *)p->weights[i] + b / 2 * group);
                    float scale = widened(scales[b % 2 * 16 + r]) * p->acts[t][b].scale;
#if WRONG == 4
                    sum += (float)integer * scale; /* rounded twice */
#else
                    sum = fmaf((float)integer, scale, sum);
#endif
                }
#if WRONG == 1
                if (calls >= 40) sum += 1;
#endif
#if WRONG == 5
                if (t == 2 && i == 1 && r == 15) sum += 1; /* one of a full tile */
#endif
#if WRONG == 6
                if (p->tokens == 1 && r == 3) continue; /* not written */
#endif
                p->results[(t * p->tiles + i) * 16 + r] = sum;
            }
#if WRONG == 7
    p->results[p->tokens * p->tiles * 16] = 0; /* one too many */
#endif
#if WRONG == 8
    p->results[-1] = 0;
#endif
}

static void multiply_q8_0(const arclight_product *p) {
    multiply(p, weight_q8_0, sizeof(arclight_q8_0));
}

static void multiply_q4_0(const arclight_product *p) {
    multiply(p, weight_q4_0, sizeof(arclight_q4_0));
}

static const arclight_kernel list[] = {
    {NAME, TYPE, INSTRUCTIONS, ROWS, TOKENS, MULTIPLY},
#ifdef SECOND
    {SECOND, "Q4_0", "scalar", 16, 2, multiply_q4_0},
#endif
};

#ifndef LIST
#define LIST arclight_kernels
#endif
extern const arclight_kernel_list LIST;
const arclight_kernel_list LIST = {VERSION, COUNT, list};

/* So that none is unused. */
const void *others[] = {multiply_q8_0, multiply_q4_0};
