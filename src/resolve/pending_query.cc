#include "resolve/pending_query.h"

#include <cstring>
#include <utility>

namespace idetcd::resolve {

PendingQuery::PendingQuery(const dns::Query& query, const Request& request)
    : query_(query),
      source_{},
      local_(*request.local),
      transport_(request.transport),
      response_limit_(request.response_limit),
      received_at_(request.now),
      sink_(request.client->keepClient()) {
  std::memcpy(buffer_.data(), query.message, query.question_end);
  query_.message = buffer_.data();
  query_.nsid = nullptr;  // this node may have another name by then
  const size_t source_size = request.source->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::memcpy(&source_, request.source, source_size);
}

void PendingQuery::makeRoom(std::vector<uint8_t>& room, const Identity* identity) {
  if (room.size() < response_limit_) room.resize(response_limit_);
  std::memcpy(room.data(), query_.message, query_.question_end);
  query_.message = room.data();
  query_.nsid = query_.wants_nsid && identity != nullptr ? identity->text() : nullptr;
}

Request PendingQuery::request() const {
  return {.source = reinterpret_cast<const sockaddr*>(&source_),
          .local = &local_,
          .transport = transport_,
          .response_limit = response_limit_,
          .now = received_at_,
          .client = nullptr};
}

bool PendingQuery::defer() {
  if (!sink_ || !sink_->defer()) return false;
  sink_.reset();
  return true;
}

void PendingQuery::send(size_t size) {
  if (sink_) std::exchange(sink_, nullptr)->send({query_.message, size});
  query_.message = buffer_.data();
}

}  // namespace idetcd::resolve
