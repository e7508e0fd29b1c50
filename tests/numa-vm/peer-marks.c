/* Preloaded into an unmodified llama-bench: sends the plugin its marks, so that decoding is counted
 * and loading is not.
 *
 * llama-bench calls llama_synchronize once after each token that it generates. The first WARM_UP
 * tokens are for first use of buffers and to fill the modelled caches; the next COUNT_TOKENS (an
 * environment variable) are counted. For the marks see numacount/src/lib.rs.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 2 };

#define MARK(op) __asm__ volatile(".byte 0x0f, 0x1f, 0x80; .long %c0" ::"i"(0x4e554d00 + (op)) : "memory")

void llama_synchronize(void *context) {
    static void (*next)(void *);
    static int done;
    if (next == NULL) {
        next = (void (*)(void *))dlsym(RTLD_NEXT, "llama_synchronize");
        if (next == NULL) {
            fputs("peer-marks: there is no llama_synchronize to call\n", stderr);
            exit(1);
        }
    }
    next(context);
    const char *tokens = getenv("COUNT_TOKENS");
    done++;
    if (done == WARM_UP - 1 || done == WARM_UP) {
        MARK(1); /* from zero */
    } else if (tokens != NULL && done == WARM_UP + atoi(tokens)) {
        MARK(2); /* no more */
        MARK(3); /* print */
    }
}
