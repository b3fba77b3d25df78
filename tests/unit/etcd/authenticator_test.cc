#include <string>

#include "client_fixture.h"
#include "etcd/authenticator_internal.h"

namespace idetcd::etcd {
namespace {

const StoreError kStale{ErrorCode::kStaleToken, "etcdserver: invalid auth token", true};

TEST(Authenticator, ALateFailureDoesNotDropTheNewToken) {
  Counters counters;
  int made = 0;
  const auto thread = CompletionThread::make().value();
  Authenticator authenticator(*thread, Credentials{"user", "password"}, counters, Logger(),
                              [&made](bool) -> Task<StoreResult<std::string>> { co_return std::to_string(++made); });
  const auto first = await(*thread, authenticator.token(false));
  ASSERT_TRUE(succeeded(first));
  EXPECT_TRUE(authenticator.dismiss(*first, kStale));
  const auto second = await(*thread, authenticator.token(false));
  ASSERT_TRUE(succeeded(second));
  EXPECT_EQ(second->text, "2");
  // A call that was made with the first one fails only now: it may be repeated, and the second token stays.
  EXPECT_TRUE(authenticator.dismiss(*first, kStale));
  const auto third = await(*thread, authenticator.token(false));
  ASSERT_TRUE(succeeded(third));
  EXPECT_EQ(third->text, "2");
  EXPECT_EQ(made, 2);
  EXPECT_TRUE(authenticator.dismiss(*third, kStale));
  EXPECT_EQ(await(*thread, authenticator.token(false))->text, "3");
  thread->stop();
}

}  // namespace
}  // namespace idetcd::etcd
