/* Connections of an environment, by their indices. In the environment's thread. */
#ifndef GB_NODE_CLIENT_H
#define GB_NODE_CLIENT_H

#include "client/node/src/addon.h"
struct gb_node_client *gb_client_at(struct gb_addon *addon, napi_value value);
/* Call it after anything that may have queued output, which is then sent before the loop waits. */
void gb_client_poll(struct gb_node_client *client);
/* Sends queued output, and polls for room if the socket is full. */
void gb_client_send(struct gb_node_client *client);
/* Receives and delivers, which may close the client. Whether anything had arrived. */
bool gb_client_receive(struct gb_node_client *client);
void gb_client_close(struct gb_node_client *client);

napi_value gb_js_connect(napi_env env, napi_callback_info info);
napi_value gb_js_close(napi_env env, napi_callback_info info);
napi_value gb_js_reference(napi_env env, napi_callback_info info);

#endif
