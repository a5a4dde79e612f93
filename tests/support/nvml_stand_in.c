// Stands in for libnvidia-ml.so.1 in tests: the GPUs are those of NVML_STAND_IN_BUSES, PCI bus
// numbers in hexadecimal between commas ("3b,86"); a GPU's UUID is "GPU-" and its bus. Without the
// variable there is no driver. Each is 10 % busier than the one before, from 25 % on, and has used
// 2 of its 80 GB. Those whose buses have the same first digit reach each other's memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, DRIVER_NOT_LOADED = 9, INVALID_ARGUMENT = 2, GPUS_MAX = 64 };

typedef struct {
    char bus_id_legacy[16];
    unsigned int domain, bus, device, pci_device_id, pci_subsystem_id;
    char bus_id[32];
} PciInfo;

static unsigned int buses[GPUS_MAX];
static unsigned int count;

int nvmlInit_v2(void) {
    const char* text = getenv("NVML_STAND_IN_BUSES");
    if (text == NULL) {
        return DRIVER_NOT_LOADED;
    }
    count = 0;
    while (*text != '\0' && count < GPUS_MAX) {
        char* end = NULL;
        buses[count++] = (unsigned int)strtoul(text, &end, 16);
        text = *end == ',' ? end + 1 : end + strlen(end);
    }
    return SUCCESS;
}

int nvmlShutdown(void) {
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned int* result) {
    *result = count;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void** device) {
    *device = index < count ? &buses[index] : NULL;
    return index < count ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetPciInfo_v3(const unsigned int* device, PciInfo* info) {
    memset(info, 0, sizeof *info);
    info->bus = *device;
    snprintf(info->bus_id, sizeof info->bus_id, "00000000:%02X:00.0", *device);
    return SUCCESS;
}

int nvmlDeviceGetUUID(const unsigned int* device, char* uuid, unsigned int size) {
    snprintf(uuid, size, "GPU-%02x", *device);
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char* version, unsigned int size) {
    snprintf(version, size, "580.10");
    return SUCCESS;
}

int nvmlDeviceGetName(const unsigned int* device, char* name, unsigned int size) {
    snprintf(name, size, "Stand-in %02x", *device);
    return SUCCESS;
}

typedef struct {
    unsigned int gpu, memory;
} Utilization;

int nvmlDeviceGetUtilizationRates(const unsigned int* device, Utilization* utilization) {
    utilization->gpu = 25 + 10 * (unsigned int)(device - buses);
    utilization->memory = 1;
    return SUCCESS;
}

typedef struct {
    unsigned long long total, free, used;
} Memory;

int nvmlDeviceGetMemoryInfo(const unsigned int* device, Memory* memory) {
    (void)device;
    memory->total = 80000000000ULL;
    memory->used = 2000000000ULL;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

int nvmlDeviceGetP2PStatus(
    const unsigned int* one, const unsigned int* other, int capability, int* status
) {
    enum { READ = 0, OK = 0, NOT_SUPPORTED = 5 };

    *status = capability == READ && *one / 16 == *other / 16 ? OK : NOT_SUPPORTED;
    return SUCCESS;
}
