/* Preloaded into an unmodified llama-bench: sends the plugin its marks, so that decoding is counted
 * and loading is not.
 *
 * llama-bench calls llama_synchronize once after each token that it generates. The first WARM_UP
 * tokens are for first use of buffers and to fill the modelled caches; the next COUNT_TOKENS (an
 * environment variable) are counted. With COUNT_PROMPT two prompts come before the tokens, each with
 * a call at its end, and the second one is counted first. For the marks see numacount/src/lib.rs.
 *
 * Every thread calls ggml_barrier between two operators: there it says that it waits. Each thread is
 * kept on one processor of those that llama.cpp binds it to, because the plugin counts by processor.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

enum { WARM_UP = 2, PROMPTS = 2, MOST_CPUS = 64 };

#define MARK(op) __asm__ volatile(".byte 0x0f, 0x1f, 0x80; .long %c0" ::"i"(0x4e554d00 + (op)) : "memory")

static void *next_of(const char *name) {
    void *next = dlsym(RTLD_NEXT, name);
    if (next == NULL) {
        fprintf(stderr, "peer-marks: there is no %s to call\n", name);
        exit(1);
    }
    return next;
}

void llama_synchronize(void *context) {
    static void (*next)(void *);
    static int done;
    if (next == NULL) {
        next = (void (*)(void *))next_of("llama_synchronize");
    }
    next(context);
    const char *tokens = getenv("COUNT_TOKENS");
    const int before = getenv("COUNT_PROMPT") != NULL ? PROMPTS : 0;
    done++;
    if (done == before - 1 || done == before + WARM_UP - 1 || done == before + WARM_UP) {
        MARK(1); /* from zero */
    } else if (tokens != NULL && (done == before || done == before + WARM_UP + atoi(tokens))) {
        MARK(2); /* no more */
        MARK(3); /* print */
    }
}

void ggml_barrier(void *pool) {
    static _Atomic(void (*)(void *)) next;
    if (next == NULL) {
        next = (void (*)(void *))next_of("ggml_barrier");
    }
    MARK(5); /* comes to a wait for all */
    next(pool);
    MARK(6); /* has left it */
}

int pthread_setaffinity_np(pthread_t thread, size_t size, const cpu_set_t *cpus) {
    static atomic_int taken[MOST_CPUS];
    static __thread int own = -1;
    static _Atomic(int (*)(pthread_t, size_t, const cpu_set_t *)) next;
    if (next == NULL) {
        next = (int (*)(pthread_t, size_t, const cpu_set_t *))next_of("pthread_setaffinity_np");
    }
    if (own >= 0 && !CPU_ISSET_S(own, size, cpus)) {
        atomic_store(&taken[own], 0);
        own = -1;
    }
    for (int cpu = 0; own < 0 && cpu < MOST_CPUS; cpu++) {
        if (CPU_ISSET_S(cpu, size, cpus) && atomic_exchange(&taken[cpu], 1) == 0) {
            own = cpu;
        }
    }
    if (own < 0) {
        return next(thread, size, cpus);
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(own, &one);
    return next(thread, sizeof one, &one);
}
