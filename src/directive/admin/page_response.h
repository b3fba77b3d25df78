// What a browser is sent, with the fields that hold it to what the page needs: its own script and style and no others,
// which the policy names by their digests, and this server. Any thread.
#pragma once

#include "http/message.h"

namespace idetcd::directive {

// The Content-Security-Policy of a document with one <style> and one <script>.
std::string policyOf(std::string_view document);

// The document.
http::Response pageResponse();

// `response` with the fields that every answer of the admin port has.
http::Response secured(http::Response response);

}  // namespace idetcd::directive
