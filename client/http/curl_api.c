/* curl_api: see curl_api.h. */
#include "client/http/curl_api.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

int curl_api_load(struct curl_api *ret, char *err, size_t err_bytes)
{
    void *library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
    const char *missing = NULL;
    if (!library)
        library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(err, err_bytes,
                 "--upstream needs libcurl.so.4, which is not installed: install libcurl4");
        return -ENOPKG;
    }
    struct {
        const char *name;
        void *to;
    } functions[] = {
#define CURL_API_ROW(name) {"curl_" #name, &ret->name},
        CURL_API(CURL_API_ROW)
#undef CURL_API_ROW
    };
    for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
        void *at = dlsym(library, functions[i].name);
        memcpy(functions[i].to, &at, sizeof(at));
        missing = at ? missing : functions[i].name;
    }
    if (!missing && ret->global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK)
        return 0;
    snprintf(err, err_bytes, "--upstream: this libcurl %s%s: install another libcurl4",
             missing ? "lacks " : "does not start", missing ? missing : "");
    return -ENOPKG;
}
