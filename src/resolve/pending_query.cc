#include "resolve/pending_query.h"

#include <algorithm>
#include <cstring>

namespace idetcd::resolve {

PendingQuery::PendingQuery(const dns::Query& query, const Request& request)
    : query_(query),
      source_{},
      local_(*request.local),
      transport_(request.transport),
      response_limit_(request.response_limit),
      received_at_(request.now),
      sink_(request.client->keepClient()) {
  buffer_.assign(query.message, query.message + query.question_end);
  query_.message = buffer_.data();
  const size_t source_size = request.source->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&source_, request.source, source_size);
}

void PendingQuery::makeRoom() {
  buffer_.resize(std::max<size_t>(response_limit_, query_.question_end));
  query_.message = buffer_.data();
}

Request PendingQuery::request() const {
  return {.source = reinterpret_cast<const sockaddr*>(&source_),
          .local = &local_,
          .transport = transport_,
          .response_limit = response_limit_,
          .now = received_at_,
          .client = nullptr};
}

void PendingQuery::send(size_t size) {
  if (sink_) std::exchange(sink_, nullptr)->send({buffer_.data(), size});
}

}  // namespace idetcd::resolve
