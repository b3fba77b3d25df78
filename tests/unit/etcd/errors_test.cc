#include <string>

#include <gtest/gtest.h>

#include "etcd/errors_internal.h"

namespace idetcd::etcd {
namespace {

ErrorCode codeOf(grpc::StatusCode code, const std::string& message, bool cancelled_by_us = false) {
  return toError(grpc::Status(code, message), cancelled_by_us).code;
}

// Another wording, or one that quotes another error, changes nothing.
TEST(EtcdErrorsTest, TheCodeDecidesWhereThereIsOne) {
  using grpc::StatusCode;
  for (const std::string text : {"", "in other words", "etcdserver: mvcc: database space exceeded"}) {
    EXPECT_EQ(codeOf(StatusCode::UNAVAILABLE, text), ErrorCode::kUnavailable);
    EXPECT_EQ(codeOf(StatusCode::DEADLINE_EXCEEDED, text), ErrorCode::kDeadlineExceeded);
    EXPECT_EQ(codeOf(StatusCode::NOT_FOUND, text), ErrorCode::kLeaseNotFound);
    EXPECT_EQ(codeOf(StatusCode::UNAUTHENTICATED, text), ErrorCode::kStaleToken);
    EXPECT_EQ(codeOf(StatusCode::PERMISSION_DENIED, text), ErrorCode::kPermissionDenied);
    EXPECT_EQ(codeOf(StatusCode::CANCELLED, text, true), ErrorCode::kCancelled);
    EXPECT_EQ(codeOf(StatusCode::CANCELLED, text, false), ErrorCode::kUnavailable);
  }
}

TEST(EtcdErrorsTest, TheTextDecidesWhereErrorsShareACode) {
  using grpc::StatusCode;
  EXPECT_EQ(codeOf(StatusCode::OUT_OF_RANGE, "etcdserver: mvcc: required revision has been compacted"),
            ErrorCode::kCompacted);
  EXPECT_EQ(codeOf(StatusCode::OUT_OF_RANGE, "etcdserver: mvcc: required revision is a future revision"),
            ErrorCode::kOther);
  EXPECT_EQ(codeOf(StatusCode::RESOURCE_EXHAUSTED, "etcdserver: mvcc: database space exceeded"), ErrorCode::kNoSpace);
  EXPECT_EQ(codeOf(StatusCode::RESOURCE_EXHAUSTED, "etcdserver: too many requests"), ErrorCode::kUnavailable);
  EXPECT_EQ(codeOf(StatusCode::RESOURCE_EXHAUSTED, "Received message larger than max (5 vs. 4)"), ErrorCode::kTooLarge);
  EXPECT_EQ(codeOf(StatusCode::INVALID_ARGUMENT, "etcdserver: user name is empty"), ErrorCode::kStaleToken);
  EXPECT_EQ(codeOf(StatusCode::INVALID_ARGUMENT, "etcdserver: revision of auth store is old"), ErrorCode::kStaleToken);
  EXPECT_EQ(codeOf(StatusCode::INVALID_ARGUMENT, "etcdserver: authentication failed, invalid user ID or password"),
            ErrorCode::kUnauthenticated);
  EXPECT_EQ(codeOf(StatusCode::FAILED_PRECONDITION, "etcdserver: authentication is not enabled"),
            ErrorCode::kAuthenticationOff);
  EXPECT_EQ(codeOf(StatusCode::FAILED_PRECONDITION, "etcdserver: role name not found"), ErrorCode::kOther);
}

// etcd forgets the code of some; and a connection that breaks has none.
TEST(EtcdErrorsTest, WithoutACode) {
  using grpc::StatusCode;
  EXPECT_EQ(codeOf(StatusCode::UNKNOWN, "auth: invalid auth token"), ErrorCode::kStaleToken);
  EXPECT_EQ(codeOf(StatusCode::UNKNOWN, "etcdserver: something new"), ErrorCode::kOther);
  EXPECT_EQ(codeOf(StatusCode::UNKNOWN, "Stream removed"), ErrorCode::kUnavailable);
  EXPECT_EQ(codeOf(StatusCode::INTERNAL, "Received RST_STREAM with error code 2"), ErrorCode::kUnavailable);
  EXPECT_EQ(toError("etcdserver: permission denied").code, ErrorCode::kPermissionDenied);
  EXPECT_EQ(toError("no word of it is known").code, ErrorCode::kOther);
}

TEST(EtcdErrorsTest, AnEtcdErrorIsAnError) {
  const tl::expected<int, StoreError> etcds = tl::unexpected(StoreError(ErrorCode::kNoSpace, "full"));
  const Error& error = etcds.error();
  EXPECT_EQ(error.code, ErrorCode::kNoSpace);
  EXPECT_EQ(error.message, "full");
}

}  // namespace
}  // namespace idetcd::etcd
