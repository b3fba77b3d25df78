// The responses to a browser, with the fields that hold it to what the page needs: its own script and style and no others,
// which the policy names by their digests, and this server. Any thread.
#pragma once

#include "http/message.h"

namespace idetcd::directive {

// page.html, as the build has embedded it (embed.cmake).
extern const std::string_view kPage;

// The host of a request's field Host, without port, brackets and the dot at the end, in lower case; empty: it is none. It
// shows whether the request can be meant for this server: a page of a stranger whose name leads here (DNS rebinding) has
// that name there, and a browser lets it read all that it is answered.
std::string hostOf(std::string_view field);

// An IP address, or a name that means this machine everywhere: nobody can redirect it. As from hostOf().
bool isAddressOrLocalhost(std::string_view host);

// The Content-Security-Policy of a document with one <style> and one <script>.
std::string policyOf(std::string_view document);

// The document.
http::Response pageResponse();

// `response` with the fields that every answer of the admin port has.
http::Response secured(http::Response response);

}  // namespace idetcd::directive
