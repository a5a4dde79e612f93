// Stands in for a tool that looks at NVTX ranges (NVTX_INJECTION64_PATH): writes "push NAME" and
// "pop" lines to the file that NVTX_STAND_IN_LOG names. For programs with one thread that marks.
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static FILE* output;

static int push(const char* name) {
    fprintf(output, "push %s\n", name);
    return 0;
}

static int pop(void) {
    fprintf(output, "pop\n");
    return 0;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get) {
    const char* path = getenv("NVTX_STAND_IN_LOG");
    const NvtxExportTableCallbacks* callbacks =
        (const NvtxExportTableCallbacks*)get(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned int size = 0;
    output = path != NULL ? fopen(path, "w") : NULL;
    if (output == NULL || callbacks == NULL ||
        !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size) ||
        size <= NVTX_CBID_CORE_RangePop) {
        return 0;
    }
    setvbuf(output, NULL, _IOLBF, 0);
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
