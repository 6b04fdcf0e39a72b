/* routes: see routes.h. */
#include "client/http/routes.h"

#include "client/http/ollama.h"
#include "client/http/page.h"
#include "client/http/reply.h"
#include "client/http/routes_about.h"
#include "client/http/routes_model.h"

#include <stdio.h>
#include <string.h>

static const struct route routes[] = {
    {"/health", ROUTE_OPEN | ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, routes_health, NULL, NULL},
    {"/v1/health", ROUTE_OPEN | ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, routes_health, NULL, NULL},
    {"/completion", ROUTE_MODEL, routes_run, routes_read_completion, &reply_native},
    {"/completions", ROUTE_MODEL, routes_run, routes_read_completion, &reply_native},
    {"/infill", ROUTE_MODEL, routes_run, routes_read_infill, &reply_native},
    {"/v1/completions", ROUTE_MODEL, routes_run, routes_read_v1, &reply_text},
    {"/v1/chat/completions", ROUTE_CHAT, routes_run, routes_read_chat, &reply_chat},
    {"/chat/completions", ROUTE_CHAT, routes_run, routes_read_chat, &reply_chat},
    {"/v1/messages", ROUTE_CHAT, routes_run, routes_read_messages, &reply_messages},
    {"/v1/messages/count_tokens", ROUTE_CHAT, exchange_answer_whole, routes_read_messages_count,
     &reply_messages},
    {"/v1/responses", ROUTE_CHAT, routes_run, routes_read_responses, &reply_responses},
    {"/v1/responses/input_tokens", ROUTE_CHAT, exchange_answer_whole, routes_read_responses_count,
     &reply_responses},
    {"/apply-template", ROUTE_CHAT, exchange_answer_whole, routes_read_template, NULL},
    {"/tokenize", ROUTE_MODEL, exchange_answer_whole, routes_read_tokenize, NULL},
    {"/detokenize", ROUTE_MODEL, exchange_answer_whole, routes_read_detokenize, NULL},
    {"/api/chat", ROUTE_CHAT, ollama_run, ollama_read_chat, &reply_ollama_chat},
    {"/api/generate", ROUTE_CHAT, ollama_run, ollama_read_generate, &reply_ollama_generate},
    {"/api/show", ROUTE_POST | ROUTE_DAEMON | ROUTE_RENDERS, exchange_answer_whole,
     ollama_read_show, &reply_ollama_chat},
    {"/api/tags", ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, ollama_tags, NULL, &reply_ollama_chat},
    {"/api/ps", ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, ollama_ps, NULL, &reply_ollama_chat},
    {"/api/version", 0, ollama_version, NULL, &reply_ollama_chat},
    {"/", 0, ollama_root, NULL, NULL},
    {"/page.css", ROUTE_OPEN, page_style, NULL, NULL},
    {"/page.js", ROUTE_OPEN, page_script, NULL, NULL},
    {"/status", ROUTE_DAEMON, routes_status, NULL, NULL},
    {"/v1/models", ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, routes_models, NULL, NULL},
    {"/models", ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST, routes_models, NULL, NULL},
    {"/v1/models/", ROUTE_DAEMON | ROUTE_IDLE | ROUTE_LIST | ROUTE_REST, routes_one_model, NULL,
     NULL},
    {"/props", ROUTE_DAEMON, routes_props, NULL, NULL},
    {"/slots", ROUTE_DAEMON, routes_slots, NULL, NULL},
    {"/metrics", 0, routes_metrics, NULL, NULL},
};

const struct route *route_find(const char *path, char *rest, size_t rest_bytes)
{
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        const struct route *r = &routes[i];
        size_t n = strlen(r->path);
        if (strcmp(path, r->path) == 0 && !(r->flags & ROUTE_REST))
            return r;
        if (r->flags & ROUTE_REST && strncmp(path, r->path, n) == 0 && path[n]) {
            snprintf(rest, rest_bytes, "%s", path + n);
            return r;
        }
    }
    return NULL;
}

const struct reply *route_reply(const struct route *r, const char *path)
{
    static const struct {
        const char *below;
        const struct reply *reply;
    } dialects[] = {{"/api/", &reply_ollama_chat},
                    {"/v1/messages/", &reply_messages},
                    {"/v1/responses/", &reply_responses}};
    for (size_t i = 0; !r && i < sizeof(dialects) / sizeof(dialects[0]); i++)
        if (strncmp(path, dialects[i].below, strlen(dialects[i].below)) == 0)
            return dialects[i].reply;
    return r ? r->reply : NULL;
}

bool route_is_open(const struct route *r)
{
    return r && r->flags & ROUTE_OPEN;
}

const char *route_method(const struct route *r)
{
    return r->flags & ROUTE_POST ? "POST" : "GET";
}

bool route_takes(const struct route *r, const char *method)
{
    if (r->flags & ROUTE_POST)
        return strcmp(method, "POST") == 0;
    return strcmp(method, "GET") == 0 || strcmp(method, "HEAD") == 0;
}
