/* A micro-kernel for matrices in Q8_0, for `arclight --kernel`.
 *
 * With AVX2, one tile of 16 rows by up to 4 tokens:
 *
 *   cc -O3 -shared -fPIC -nostdlib -mavx2 -mfma -mf16c -I crates/foreign/include examples/kernel/q8_0.c -o q8_0-avx2.so
 *
 * With AVX-512 and VNNI, two tiles by up to 6 tokens:
 *
 *   cc -O3 -shared -fPIC -nostdlib -march=cascadelake -I crates/foreign/include examples/kernel/q8_0.c -o q8_0-vnni.so
 *
 * It calls no library, so that it can be loaded by a program that has its own within.
 */
#include "arclight_kernel.h"

#include <immintrin.h>

#if defined(__AVX512VNNI__)

#define NAME "example-q8_0-vnni"
#define INSTRUCTIONS "avx512vnni"
#define TILES 2
#define TOKENS 6
/* A register has all rows of a tile. */
#define PARTS 1
typedef __m512 floats;
typedef __m512i integers;

static inline floats half_floats(const uint16_t *from) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)from));
}

/* Weights have 128 added: what that gives too much is taken back at the start. */
static inline integers start(const arclight_acts *acts) {
    return _mm512_set1_epi32(acts->minus_128_sum);
}

static inline integers weights(const uint8_t (*from)[4]) {
    return _mm512_loadu_si512(from);
}

static inline integers dot(integers sum, integers weights, int quad) {
    return _mm512_dpbusd_epi32(sum, weights, _mm512_set1_epi32(quad));
}

static inline floats add(integers sum, floats scale, float act, floats to) {
    return _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum), _mm512_mul_ps(scale, _mm512_set1_ps(act)), to);
}

#define zero() _mm512_setzero_ps()
#define store _mm512_storeu_ps

#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#define NAME "example-q8_0-avx2"
#define INSTRUCTIONS "avx2"
#define TILES 1
#define TOKENS 4
/* A register has half of the rows of a tile. */
#define PARTS 2
typedef __m256 floats;
typedef __m256i integers;

static inline floats half_floats(const uint16_t *from) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

static inline integers start(const arclight_acts *acts) {
    (void)acts;
    return _mm256_setzero_si256();
}

/* 128 is taken off. */
static inline integers weights(const uint8_t (*from)[4]) {
    integers biased = _mm256_loadu_si256((const __m256i *)from);
    return _mm256_xor_si256(biased, _mm256_set1_epi8((char)0x80));
}

/* The magnitudes of the weights, 128 at most, are multiplied by activations with the weights' signs, 127 at most:
 * so two products fit into 16 bits. */
static inline integers dot(integers sum, integers weights, int quad) {
    integers acts = _mm256_sign_epi8(_mm256_set1_epi32(quad), weights);
    integers pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(weights), acts);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

static inline floats add(integers sum, floats scale, float act, floats to) {
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum), _mm256_mul_ps(scale, _mm256_set1_ps(act)), to);
}

#define zero() _mm256_setzero_ps()
#define store _mm256_storeu_ps

#else
#error "build it for a CPU with AVX2, FMA and F16C, or with AVX-512 and VNNI: the lines are above"
#endif

#define LANES (ARCLIGHT_ROWS / PARTS)

/* One register tile. Sizes are constants wherever it is called, so all arrays are registers. */
__attribute__((always_inline)) static inline void tile(
    const arclight_product *p, const int tiles, const int tokens) {
    const int parts = tiles * PARTS;
    floats sums[TOKENS][TILES * PARTS];
    for (int t = 0; t < tokens; t++)
        for (int n = 0; n < parts; n++)
            sums[t][n] = zero();
    for (size_t b = 0; b < p->blocks; b++) {
        const arclight_q8_0 *groups[TILES];
        for (int i = 0; i < tiles; i++) {
            groups[i] = (const arclight_q8_0 *)p->weights[i] + b / 2;
            /* Not more than is multiplied meanwhile: 8 lines, and the line of scales with every other block. */
            if (p->ahead) {
                const char *to_come = (const char *)groups[i]->quants[b % 2] + p->ahead;
                for (int line = 0; line < 8 + (int)(b % 2); line++)
                    _mm_prefetch(to_come + 64 * line, _MM_HINT_T0);
            }
        }
        integers dots[TOKENS][TILES * PARTS];
        for (int t = 0; t < tokens; t++)
            for (int n = 0; n < parts; n++)
                dots[t][n] = start(&p->acts[t][b]);
        for (int j = 0; j < 8; j++) {
            integers w[TILES * PARTS];
            for (int n = 0; n < parts; n++)
                w[n] = weights(&groups[n / PARTS]->quants[b % 2][j][n % PARTS * LANES]);
            for (int t = 0; t < tokens; t++) {
                int quad;
                __builtin_memcpy(&quad, &p->acts[t][b].quants[4 * j], 4);
                for (int n = 0; n < parts; n++)
                    dots[t][n] = dot(dots[t][n], w[n], quad);
            }
        }
        for (int n = 0; n < parts; n++) {
            floats scale = half_floats(&groups[n / PARTS]->scales[b % 2][n % PARTS * LANES]);
            for (int t = 0; t < tokens; t++)
                sums[t][n] = add(dots[t][n], scale, p->acts[t][b].scale, sums[t][n]);
        }
    }
    for (int t = 0; t < tokens; t++)
        for (int n = 0; n < parts; n++)
            store(p->results + (t * parts + n) * LANES, sums[t][n]);
}

/* Tiles and tokens as constants. */
static void multiply(const arclight_product *p) {
    switch (16 * p->tiles + p->tokens) {
#define CASE(tiles, tokens)          \
    case 16 * (tiles) + (tokens):    \
        tile(p, tiles, tokens);      \
        break;
#define TILES_BY(tiles) CASE(tiles, 1) CASE(tiles, 2) CASE(tiles, 3) CASE(tiles, 4)
        TILES_BY(1)
#if TOKENS > 4
        CASE(1, 5) CASE(1, 6) TILES_BY(2) CASE(2, 5) CASE(2, 6)
#endif
    }
}

static const arclight_kernel list[] = {{
    .name = NAME,
    .type = "Q8_0",
    .instructions = INSTRUCTIONS,
    .rows = ARCLIGHT_ROWS * TILES,
    .tokens = TOKENS,
    .multiply = multiply,
}};

const arclight_kernel_list arclight_kernels = {
    .version = ARCLIGHT_KERNEL_VERSION,
    .count = sizeof list / sizeof *list,
    .kernels = list,
};
