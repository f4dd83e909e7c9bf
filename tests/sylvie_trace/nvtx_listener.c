/* A tool for NVTX in a few lines: loaded through NVTX_INJECTION64_PATH, it writes every call to $NVTX_LISTENER_FILE.
   The layouts are those of NVTX 3 (nvtxTypes.h, nvToolsExt.h): an attribute block, a table of hooks. */
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    uint16_t version, size;
    uint32_t category;
    int32_t colour_type;
    uint32_t colour;
    int32_t payload_type, reserved;
    union { uint64_t u; int64_t i; double d; } payload;
    int32_t message_type;
    union { const char *ascii; const void *registered; } message;
} Attributes;

typedef void (*Function)(void);
typedef struct {
    size_t size;
    int (*module_table)(int module, Function ***table, unsigned *count);
} Callbacks;

static FILE *out;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next_id = 1;

static void say(const char *call, const void *domain, const Attributes *a, uint64_t id) {
    const char *text = a == NULL ? "-" : a->message_type == 3 ? (const char *)a->message.registered : a->message.ascii;
    pthread_mutex_lock(&lock);
    fprintf(out, "%s\t%s\t%s\t%d\t%lld\t%llu\t%lu\n", call, (const char *)domain, text ? text : "-",
            a ? a->payload_type : -1, a ? (long long)a->payload.i : 0, (unsigned long long)id,
            (unsigned long)pthread_self());
    fflush(out);
    pthread_mutex_unlock(&lock);
}

static void *domain_create(const char *name) { return strdup(name); }
static void *register_string(void *domain, const char *text) { (void)domain; return strdup(text); }
static int push(void *domain, const Attributes *a) { say("push", domain, a, 0); return 0; }
static int pop(void *domain) { say("pop", domain, NULL, 0); return 0; }
static uint64_t start(void *domain, const Attributes *a) { uint64_t id = next_id++; say("start", domain, a, id); return id; }
static void end(void *domain, uint64_t id) { say("end", domain, NULL, id); }

int InitializeInjectionNvtx2(const void *(*export_table)(uint32_t)) {
    const Callbacks *callbacks = export_table(1);
    Function **table = NULL;
    unsigned count = 0;
    char path[4096]; /* a name that ends in a dot is completed by the process id: one file a process */
    const char *name = getenv("NVTX_LISTENER_FILE");
    if (name == NULL) return 0;
    snprintf(path, sizeof path, name[0] && name[strlen(name) - 1] == '.' ? "%s%d" : "%s", name, (int)getpid());
    out = fopen(path, "w");
    if (out == NULL || callbacks == NULL || !callbacks->module_table(5, &table, &count) || count < 13) return 0;
    *table[2] = (Function)start;
    *table[3] = (Function)end;
    *table[4] = (Function)push;
    *table[5] = (Function)pop;
    *table[10] = (Function)register_string;
    *table[12] = (Function)domain_create;
    return 1;
}
