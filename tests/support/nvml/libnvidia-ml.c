/* NVIDIA's management library as far as Rankdeck asks it, answering from a file.
 *
 * FAKE_NVML names the file. A line is `FUNCTION GPU VALUE...`: GPU is a number or `*`, the last
 * line that fits wins. VALUE is a number (several for functions that give several), a text,
 * `!15` for NVML's error 15, or `hang`. A field of GetFieldValues is the function `field.NUMBER`.
 * What no line names is not supported. `count` is the number of GPUs.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LINES 4096
#define NOT_SUPPORTED 3
#define INVALID_ARGUMENT 2
#define GPUS 64
#define INSTANCES 16

typedef struct { int gpu, instance; } device;
typedef struct { char name[40], gpu[8], value[120]; } line;
static line table[LINES];
static int lines;
static struct timespec read_at;
static device devices[GPUS], instances[GPUS * INSTANCES];

static void load(void) {
    const char *path = getenv("FAKE_NVML");
    struct stat now;
    if (!path || stat(path, &now)) return;
    if (lines && !memcmp(&now.st_mtim, &read_at, sizeof read_at)) return;
    FILE *file = fopen(path, "r");
    if (!file) return;
    char text[200];
    lines = 0;
    while (lines < LINES && fgets(text, sizeof text, file)) {
        line *l = &table[lines];
        if (sscanf(text, "%39s %7s %119[^\n]", l->name, l->gpu, l->value) == 3) lines++;
    }
    fclose(file);
    read_at = now.st_mtim;
}

static const char *find(const char *name, int gpu) {
    load();
    char number[8];
    snprintf(number, sizeof number, "%d", gpu);
    for (int i = lines - 1; i >= 0; i--)
        if (!strcmp(table[i].name, name) && (table[i].gpu[0] == '*' || !strcmp(table[i].gpu, number)))
            return table[i].value;
    return NULL;
}

/* 0 and the numbers; or NVML's error. */
static int numbers(const char *name, int gpu, double *found, int wanted) {
    const char *text = find(name, gpu);
    if (!text) return NOT_SUPPORTED;
    if (*text == '!') return atoi(text + 1);
    if (!strcmp(text, "hang")) for (;;) pause();
    char *rest = (char *)text;
    for (int i = 0; i < wanted; i++) found[i] = strtod(rest, &rest);
    return 0;
}

static int words(const char *name, int gpu, char *out, unsigned size) {
    const char *text = find(name, gpu);
    if (!text) return NOT_SUPPORTED;
    if (*text == '!') return atoi(text + 1);
    if (!strcmp(text, "hang")) for (;;) pause();
    snprintf(out, size, "%s", text);
    return 0;
}

#define GPU(d) (((device *)(d))->gpu)
#define WHOLE(function, type)                                       \
    int function(void *d, type *out) {                              \
        double v = 0;                                               \
        int r = numbers(#function + 13, GPU(d), &v, 1);             \
        if (!r) *out = (type)v;                                     \
        return r;                                                   \
    }
#define TEXT(function)                                              \
    int function(void *d, char *out, unsigned size) {               \
        return words(#function + 13, GPU(d), out, size);            \
    }
/* The names in the file leave `nvmlDeviceGet` away. */

WHOLE(nvmlDeviceGetPowerUsage, unsigned)
WHOLE(nvmlDeviceGetEnforcedPowerLimit, unsigned)
WHOLE(nvmlDeviceGetTotalEnergyConsumption, uint64_t)
WHOLE(nvmlDeviceGetCurrentClocksEventReasons, uint64_t)
WHOLE(nvmlDeviceGetCurrPcieLinkGeneration, unsigned)
WHOLE(nvmlDeviceGetMaxPcieLinkGeneration, unsigned)
WHOLE(nvmlDeviceGetCurrPcieLinkWidth, unsigned)
WHOLE(nvmlDeviceGetMaxPcieLinkWidth, unsigned)
WHOLE(nvmlDeviceGetPcieReplayCounter, unsigned)
WHOLE(nvmlDeviceGetRetiredPagesPendingStatus, unsigned)
WHOLE(nvmlDeviceGetPersistenceMode, unsigned)
WHOLE(nvmlDeviceGetMaxMigDeviceCount, unsigned)
TEXT(nvmlDeviceGetSerial)
TEXT(nvmlDeviceGetVbiosVersion)

int nvmlInitWithFlags(unsigned flags) {
    double v;
    int r = numbers("init", 0, &v, 0);
    (void)flags;
    return r == NOT_SUPPORTED ? 0 : r;
}
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *out, unsigned size) { return words("driver", 0, out, size); }
const char *nvmlErrorString(int code) { return code == 15 ? "GPU is lost" : "some error"; }

int nvmlDeviceGetCount_v2(unsigned *count) {
    double v = 0;
    int r = numbers("count", 0, &v, 1);
    *count = (unsigned)v;
    return r;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out) {
    double gpu = index;
    if (index >= GPUS) return INVALID_ARGUMENT;
    int r = numbers("Handle", (int)index, &gpu, 1);
    if (r && r != NOT_SUPPORTED) return r;
    numbers("place", (int)index, &gpu, 1); /* which GPU has this index now */
    devices[(int)gpu].gpu = (int)gpu;
    devices[(int)gpu].instance = -1;
    *out = &devices[(int)gpu];
    return 0;
}
int nvmlDeviceGetName(void *d, char *out, unsigned size) {
    return words(((device *)d)->instance < 0 ? "Name" : "MigName", GPU(d), out, size);
}
int nvmlDeviceGetUUID(void *d, char *out, unsigned size) {
    int r = words("UUID", GPU(d), out, size);
    if (r == NOT_SUPPORTED) r = snprintf(out, size, "GPU-%08d", GPU(d)) < 0;
    return r;
}
typedef struct {
    char legacy[16];
    unsigned domain, bus, device, id, subsystem;
    char bus_id[32];
} pci;
int nvmlDeviceGetPciInfo_v3(void *d, pci *out) {
    memset(out, 0, sizeof *out);
    int r = words("PciInfo", GPU(d), out->bus_id, sizeof out->bus_id);
    if (r == NOT_SUPPORTED)
        r = snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", 16 + GPU(d)) < 0;
    return r;
}
int nvmlDeviceGetUtilizationRates(void *d, unsigned *out) {
    double v[2] = {0, 0};
    int r = numbers("UtilizationRates", GPU(d), v, 2);
    out[0] = (unsigned)v[0], out[1] = (unsigned)v[1];
    return r;
}
int nvmlDeviceGetMemoryInfo(void *d, uint64_t *out) { /* total free used */
    double v[2];
    int r = numbers("MemoryInfo", GPU(d), v, 2); /* used total */
    if (!r) out[0] = (uint64_t)v[1], out[1] = (uint64_t)(v[1] - v[0]), out[2] = (uint64_t)v[0];
    return r;
}
typedef struct { unsigned version; uint64_t total, reserved, free, used; } memory2;
int nvmlDeviceGetMemoryInfo_v2(void *d, memory2 *out) {
    double v[3];
    int r = numbers("MemoryInfo", GPU(d), v, 3); /* used total reserved */
    if (!r) out->total = (uint64_t)v[1], out->used = (uint64_t)v[0], out->reserved = (uint64_t)v[2];
    if (!r) out->free = out->total - out->used - out->reserved;
    return r;
}
int nvmlDeviceGetTemperature(void *d, int sensor, unsigned *out) {
    double v;
    int r = numbers("Temperature", GPU(d), &v, 1);
    (void)sensor;
    if (!r) *out = (unsigned)v;
    return r;
}
int nvmlDeviceGetTemperatureThreshold(void *d, int kind, unsigned *out) {
    double v;
    int r = numbers("TemperatureThreshold", GPU(d), &v, 1);
    if (!r) *out = (unsigned)v;
    return kind == 1 || kind == 2 ? r : NOT_SUPPORTED; /* slowdown, memory */
}
int nvmlDeviceGetMarginTemperature(void *d, int *out) {
    double v;
    int r = numbers("MarginTemperature", GPU(d), &v, 1);
    if (!r) out[1] = (int)v;
    return r;
}
int nvmlDeviceGetClockInfo(void *d, int kind, unsigned *out) {
    double v[3];
    int r = numbers("ClockInfo", GPU(d), v, 3); /* graphics SM memory */
    if (!r) *out = (unsigned)v[kind];
    return r;
}
int nvmlDeviceGetTotalEccErrors(void *d, int kind, int span, uint64_t *out) {
    double v[4];
    int r = numbers("TotalEccErrors", GPU(d), v, 4); /* volatile: corrected uncorrected; aggregate */
    if (!r) *out = (uint64_t)v[2 * span + kind];
    return r;
}
int nvmlDeviceGetSramEccErrorStatus(void *d, char *out) {
    double v;
    int r = numbers("SramEccErrorStatus", GPU(d), &v, 1);
    if (!r) *(unsigned *)(out + 96) = (unsigned)v; /* version and 11 counters come before it */
    return r;
}
int nvmlDeviceGetRemappedRows(void *d, unsigned *corrected, unsigned *uncorrected, unsigned *pending, unsigned *failed) {
    double v[4];
    int r = numbers("RemappedRows", GPU(d), v, 4);
    if (!r) *corrected = (unsigned)v[0], *uncorrected = (unsigned)v[1], *pending = (unsigned)v[2], *failed = (unsigned)v[3];
    return r;
}
int nvmlDeviceGetRetiredPages(void *d, int cause, unsigned *count, uint64_t *pages) {
    double v[2];
    int r = numbers("RetiredPages", GPU(d), v, 2);
    if (r) return r;
    unsigned room = *count;
    *count = (unsigned)v[cause];
    if (room < *count) return 7;
    if (pages) memset(pages, 0, *count * sizeof *pages);
    return 0;
}
int nvmlDeviceGetNvLinkState(void *d, unsigned link, unsigned *active) {
    double v[2];
    int r = numbers("NvLinks", GPU(d), v, 2); /* how many, how many are up */
    if (!r && link >= (unsigned)v[0]) return INVALID_ARGUMENT;
    if (!r) *active = link < (unsigned)v[1];
    return r;
}
typedef struct {
    unsigned version;
    unsigned char cluster[16];
    int status;
    unsigned clique;
    unsigned char state;
    unsigned health;
} fabric;
int nvmlDeviceGetGpuFabricInfoV(void *d, fabric *out) {
    double v[3];
    int r = numbers("GpuFabricInfo", GPU(d), v, 3); /* state status health */
    if (!r) out->state = (unsigned char)v[0], out->status = (int)v[1], out->health = (unsigned)v[2];
    return r;
}
typedef struct {
    unsigned field, scope;
    int64_t timestamp, latency;
    int type, result;
    union { double d; unsigned u; uint64_t ull; } value;
} field;
int nvmlDeviceGetFieldValues(void *d, int count, field *fields) {
    for (int i = 0; i < count; i++) {
        char name[20];
        double v = 0;
        snprintf(name, sizeof name, "field.%u", fields[i].field);
        fields[i].result = numbers(name, GPU(d), &v, 1);
        fields[i].type = 3;
        fields[i].value.ull = (uint64_t)v;
    }
    return 0;
}
static int busy(void *d, const char *name, unsigned *share, unsigned *period) {
    double v;
    int r = numbers(name, GPU(d), &v, 1);
    if (!r) *share = (unsigned)v, *period = 1000000;
    return r;
}
int nvmlDeviceGetEncoderUtilization(void *d, unsigned *share, unsigned *period) { return busy(d, "EncoderUtilization", share, period); }
int nvmlDeviceGetJpgUtilization(void *d, unsigned *share, unsigned *period) { return busy(d, "JpgUtilization", share, period); }
int nvmlDeviceGetOfaUtilization(void *d, unsigned *share, unsigned *period) { return busy(d, "OfaUtilization", share, period); }
int nvmlDeviceGetGridLicensableFeatures_v4(void *d, int *out) { /* supported, count, then the features: code state ... */
    double v[2];
    int r = numbers("GridLicensableFeatures", GPU(d), v, 2); /* supported, state of the only feature */
    if (!r) out[0] = (int)v[0], out[1] = 1, out[2] = 1, out[3] = (int)v[1];
    return r;
}
int nvmlDeviceGetDecoderUtilization(void *d, unsigned *share, unsigned *period) { return busy(d, "DecoderUtilization", share, period); }

/* A sample knows its GPU. A metric of GPM is the function `gpm.NUMBER`. */
int nvmlGpmQueryDeviceSupport(void *d, unsigned *out) { /* version, supported */
    double v = 0;
    int r = numbers("Gpm", GPU(d), &v, 1);
    out[1] = (unsigned)v;
    return r == NOT_SUPPORTED ? 0 : r;
}
int nvmlGpmSampleAlloc(void **out) { return (*out = calloc(1, sizeof(device))) ? 0 : 20; }
int nvmlGpmSampleFree(void *sample) { free(sample); return 0; }
int nvmlGpmMigSampleGet(void *d, unsigned instance, void *sample) {
    *(device *)sample = (device){GPU(d), (int)instance};
    return find("GpmMig", GPU(d)) ? 0 : NOT_SUPPORTED;
}
int nvmlGpmSampleGet(void *d, void *sample) {
    double v = 0;
    int r = numbers("GpmSample", GPU(d), &v, 1);
    *(device *)sample = *(device *)d;
    return r == NOT_SUPPORTED ? 0 : r;
}
typedef struct {
    unsigned id;
    int result;
    double value;
    const char *words[3];
} gpm;
typedef struct { unsigned version, count; void *before, *now; gpm metrics[]; } gpm_get;
int nvmlGpmMetricsGet(gpm_get *asked) {
    if (!asked->before || !asked->now || asked->before == asked->now) return INVALID_ARGUMENT;
    for (unsigned i = 0; i < asked->count; i++) {
        char name[20];
        snprintf(name, sizeof name, "gpm.%u", asked->metrics[i].id);
        asked->metrics[i].result = numbers(name, GPU(asked->now), &asked->metrics[i].value, 1);
        /* What an instance did is that of the GPU and its own number more. */
        if (((device *)asked->now)->instance >= 0) asked->metrics[i].value += ((device *)asked->now)->instance;
    }
    return 0;
}

typedef struct { unsigned pid; uint64_t used; unsigned gi, ci; } process;
int nvmlDeviceGetComputeRunningProcesses_v3(void *d, unsigned *count, process *out) {
    double v[32] = {0}, gi = 0xFFFFFFFF;
    int r = numbers("Processes", GPU(d), v, 32); /* pid bytes pid bytes ... */
    numbers("ProcessInstance", GPU(d), &gi, 1);
    unsigned many = 0, room = *count;
    if (r) return r;
    while (many < 16 && v[2 * many]) many++;
    *count = many;
    if (room < many) return 7;
    for (unsigned i = 0; i < many; i++)
        out[i] = (process){(unsigned)v[2 * i], (uint64_t)v[2 * i + 1], (unsigned)gi, 0xFFFFFFFF};
    return 0;
}
typedef struct { unsigned pid; uint64_t at; unsigned sm, memory, encoder, decoder; } use;
int nvmlDeviceGetProcessUtilization(void *d, use *out, unsigned *count, uint64_t since) {
    double v[5];
    int r = numbers("ProcessUtilization", GPU(d), v, 5); /* pid, percent: SM memory encoder decoder */
    unsigned room = out ? *count : 0;
    (void)since;
    if (r) return r;
    *count = 1;
    if (!room) return 7;
    *out = (use){(unsigned)v[0], 1, (unsigned)v[1], (unsigned)v[2], (unsigned)v[3], (unsigned)v[4]};
    return 0;
}
int nvmlDeviceGetMigMode(void *d, unsigned *now, unsigned *pending) {
    double v = 0;
    int r = numbers("MigMode", GPU(d), &v, 1);
    *now = *pending = (unsigned)v;
    return r;
}
int nvmlDeviceGetMigDeviceHandleByIndex(void *d, unsigned index, void **out) {
    double v = 0;
    int r = numbers("MigInstances", GPU(d), &v, 1);
    if (r || index >= (unsigned)v || index >= INSTANCES) return 6;
    device *instance = &instances[GPU(d) * INSTANCES + (int)index];
    instance->gpu = GPU(d), instance->instance = (int)index;
    *out = instance;
    return 0;
}
int nvmlDeviceGetGpuInstanceId(void *d, unsigned *out) {
    *out = (unsigned)((device *)d)->instance + 7;
    return 0;
}
