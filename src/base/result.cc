#include "base/result.h"

namespace idetcd {
namespace {

ErrorCode codeOf(int error) {
  if (error == ENOENT) return ErrorCode::kNotFound;
  if (error == EADDRINUSE) return ErrorCode::kAddressInUse;
  if (error == EACCES) return ErrorCode::kPermissionDenied;
  return isWantOfResources(error) ? ErrorCode::kNoResources : ErrorCode::kOther;
}

}  // namespace

bool isWantOfResources(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS || error == EAGAIN ||
         error == ENOSPC;
}

tl::unexpected<Error> failWith(int error, std::string_view doing) {
  std::string message(doing);
  if (!doing.empty()) message += ": ";
  message += std::strerror(error);
  return fail(std::move(message), codeOf(error));
}

}  // namespace idetcd
