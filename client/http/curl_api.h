/* curl_api: libcurl, loaded when a gateway has upstreams.
 *
 * It brings some twenty libraries with it, which a gateway in front of this machine's daemons alone
 * neither loads nor needs to have. Its interface is stable: libcurl.so.4 since 2006. */
#ifndef HEARTH_CLIENT_HTTP_CURL_API_H
#define HEARTH_CLIENT_HTTP_CURL_API_H

#include <curl/curl.h>
#include <stddef.h>

/* The functions that are used, without their prefix. */
#define CURL_API(FUNCTION)                                                                         \
    FUNCTION(global_init)                                                                          \
    FUNCTION(easy_init)                                                                            \
    FUNCTION(easy_setopt)                                                                          \
    FUNCTION(easy_getinfo)                                                                         \
    FUNCTION(easy_pause)                                                                           \
    FUNCTION(easy_strerror)                                                                        \
    FUNCTION(easy_cleanup)                                                                         \
    FUNCTION(multi_init)                                                                           \
    FUNCTION(multi_setopt)                                                                         \
    FUNCTION(multi_add_handle)                                                                     \
    FUNCTION(multi_remove_handle)                                                                  \
    FUNCTION(multi_socket_action)                                                                  \
    FUNCTION(multi_assign)                                                                         \
    FUNCTION(multi_info_read)                                                                      \
    FUNCTION(multi_cleanup)                                                                        \
    FUNCTION(slist_append)                                                                         \
    FUNCTION(slist_free_all)

struct curl_api {
#define CURL_API_MEMBER(name) __typeof__(curl_##name) *name;
    CURL_API(CURL_API_MEMBER)
#undef CURL_API_MEMBER
};

/* Returns 0, or -ENOENT with one line. The library stays loaded. */
int curl_api_load(struct curl_api *ret, char *err, size_t err_bytes);

#endif
