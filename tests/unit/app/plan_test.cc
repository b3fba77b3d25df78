// Every directive of a server block but `idetcd` (plan_cluster_test.cc): what its options come to, what they are where
// they are not named, and what is refused.
#include "app/plan.h"

#include <memory>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "directive/acl/acl.h"
#include "directive/admin/answers.h"
#include "directive/auto/zone_folder.h"
#include "directive/bind/settings.h"
#include "directive/chaos/chaos.h"
#include "directive/cookies/secrets.h"
#include "directive/errors/error_log.h"


#include "directive/etcd/service_mirrors.h"
#include "directive/file/zone_settings.h"
#include "directive/health/self_check.h"
#include "directive/hosts/hosts.h"
#include "directive/local/local.h"
#include "directive/log/query_log.h"
#include "directive/nsid/identity.h"
#include "directive/order.h"
#include "directive/private/setup.h"
#include "directive/prometheus/query_meters.h"
#include "directive/ready/readiness.h"
#include "directive/reload/corefile_watch.h"
#include "directive/rrl/response_limiter.h"
#include "directive/secondary/secondary_zones.h"
#include "directive/transfer/transfer_settings.h"
#include "directive/values/values.h"
#include "directive/xdp/kernel_answers.h"
#include "net/tls_stream.h"
#include "resolver/dns64.h"
#include "resolver/waiting_clients.h"
#include "support/temporary_directory.h"

namespace idetcd::app {
namespace {

using namespace std::chrono_literals;
using Policy = resolver::Forwarder::Policy;

Result<Plan> planOf(const std::string& directives) {
  return makePlan("Corefile", ".:0 {\n" + directives + "\n}\n", 53);
}

resolve::Block accepted(const std::string& directives) {
  auto plan = planOf(directives);
  if (plan) return std::move(plan->blocks.at(0));
  ADD_FAILURE() << directives << ": " << plan.error().message;
  return {};
}

// The one directive of its type.
template <typename T>
const T& only(const resolve::Block& block) {
  const T* found = block.find<T>();
  EXPECT_NE(found, nullptr);
  static const T kNone;
  return found != nullptr ? *found : kNone;
}
template <typename T>
T settings(const resolve::Block& block) {
  const T* found = block.settings<T>();
  EXPECT_NE(found, nullptr);
  return found != nullptr ? *found : T();
}
template <typename T>
bool has(const std::string& directives) {
  return accepted(directives).find<T>() != nullptr;
}
std::vector<resolver::Forwarder::Options> forwards(const std::string& directives) {
  return settings<std::vector<resolver::Forwarder::Options>>(accepted(directives));
}
resolver::CacheSettings cache(const std::string& directives) {
  return settings<resolver::CacheSettings>(accepted(directives));
}
directive::HostsOptions hosts(const std::string& directives) {
  return settings<directive::HostsOptions>(accepted(directives));
}
size_t bufsize(const std::string& directives) { return *directive::valuesOf(accepted(directives)).bufsize; }

testing::AssertionResult refused(const std::string& directives, const std::string& why, int line = 2) {
  const auto plan = planOf(directives);
  if (plan) return testing::AssertionFailure() << directives << ": it was accepted";
  const std::string& message = plan.error().message;
  const std::string place = "Corefile:" + std::to_string(line) + " - Error during parsing: ";
  if (message.starts_with(place) && message.find(why) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << directives << ": " << message;
}

resolver::Forwarder::Options forward(const std::string& options, const std::string& to = "192.0.2.1") {
  const auto all = forwards("forward . " + to + " {\n" + options + "\n}");
  return all.empty() ? resolver::Forwarder::Options{} : all.front();
}
testing::AssertionResult forwardRefused(const std::string& option, const std::string& why) {
  return refused("forward . 192.0.2.1 {\n" + option + "\n}", why, 3);
}

std::vector<std::string> textsOf(const std::vector<dns::Name>& names) {
  std::vector<std::string> texts;
  for (const dns::Name& name : names) texts.push_back(name.toString());
  return texts;
}
using Texts = std::vector<std::string>;

TEST(Plan, SaysAllThatIsWrongAndWhatToWrite) {
  const auto plan = planOf("foward . 192.0.2.1\ncache {\nsucess 5\nprefetch\n}\nbufsize 1");
  ASSERT_FALSE(plan);
  EXPECT_EQ(
      plan.error().message,
      "Corefile:2 - Error during parsing: Unknown directive 'foward', did you mean 'forward'?\n"
      "Corefile:4 - Error during parsing: unknown property 'sucess', did you mean 'success'?\n"
      "Corefile:5 - Error during parsing: Wrong argument count or unexpected line ending after 'prefetch'; write: "
      "prefetch AMOUNT [DURATION] [PERCENTAGE%]\n"
      "Corefile:7 - Error during parsing: bufsize must be within 512 - 4096: 1; write: bufsize [SIZE], from 512 to "
      "4096");
}

TEST(Plan, WhatIsLikeNothingIsToldTheChoice) {
  EXPECT_TRUE(refused("minimal {\n}\nloop {\nxyz\n}", "write: minimal"));
  EXPECT_TRUE(refused("hosts {\nqwerty\n}",
                      "write: one of ttl, reload, no_reverse, fallthrough, fallthrough_unsupported, ADDRESS NAME...",
                      3));
  EXPECT_TRUE(refused("hosts {\nfallthrough_unsupported\n}", "fallthrough_unsupported needs fallthrough", 4));
}

TEST(PlanCookies, Options) {
  const auto cookies = [](const std::string& text) {
    return settings<directive::CookieSettings>(accepted(text));
  };
  const directive::CookieSettings defaults = cookies("cookies");
  EXPECT_FALSE(defaults.off || defaults.require);
  EXPECT_TRUE(defaults.secrets.empty() && defaults.secret_file.empty());
  EXPECT_TRUE(cookies("cookies off").off);
  EXPECT_TRUE(cookies("cookies {\nrequire\n}").require);
  EXPECT_EQ(cookies("cookies {\nsecret_file /etc/secret\n}").secret_file, "/etc/secret");
  const std::string secret = "e5e973e5a6b2a43f48e7dc849e37bfcf";
  const auto secrets = cookies("cookies {\nsecret " + secret + " 000102030405060708090A0B0C0D0E0F\n}").secrets;
  ASSERT_EQ(secrets.size(), 2u);
  EXPECT_EQ(secrets[0][0], 0xe5);
  EXPECT_EQ(secrets[1][15], 0x0f);
}

TEST(PlanCookies, Refused) {
  const std::string secret = "e5e973e5a6b2a43f48e7dc849e37bfcf";
  EXPECT_TRUE(refused("cookies on", "the argument is neither off nor a block; write: cookies [off]"));
  EXPECT_TRUE(refused("cookies off {\nrequire\n}", "cookies that are off have no options", 4));
  EXPECT_TRUE(refused("cookies {\nsecret_file a\nsecret " + secret + "\n}", "exclude each other", 5));
  EXPECT_TRUE(refused("cookies\ncookies", "once", 3));
  for (const std::string& wrong : {secret.substr(1), secret + "0", "g" + secret.substr(1), "-" + secret.substr(1)}) {
    EXPECT_TRUE(refused("cookies {\nsecret " + wrong + "\n}", "32 hexadecimal digits; write: secret HEX...", 3));
    const auto plan = planOf("cookies {\nsecret " + wrong + "\n}");
    EXPECT_EQ(plan.error().message.find(wrong.substr(2)), std::string::npos) << "a secret is not shown";
  }
}

TEST(PlanRrl, Options) {
  const auto rrl = [](const std::string& text) { return settings<directive::RrlSettings>(accepted(text)); };
  const directive::RrlSettings defaults = rrl("rrl");
  EXPECT_EQ(textsOf(defaults.zones), Texts{"."});
  EXPECT_EQ(defaults.window, 15s);
  EXPECT_EQ(defaults.ipv4_prefix, 24);
  EXPECT_EQ(defaults.ipv6_prefix, 56);
  EXPECT_EQ(defaults.responses, (std::array<uint32_t, directive::kLimitClasses>{}));
  EXPECT_EQ(defaults.requests, 0u);
  EXPECT_EQ(defaults.slip_ratio, 2u);
  EXPECT_EQ(defaults.table_size, 100000u);
  EXPECT_FALSE(defaults.report_only);
  const directive::RrlSettings all =
      rrl("rrl example.org {\nwindow 5\nipv4-prefix-length 32\nipv6-prefix-length 64\nnodata-per-second 2\n"
          "responses-per-second 1\nnxdomains-per-second 3\nreferrals-per-second 4\nerrors-per-second 0\n"
          "requests-per-second 6\nslip-ratio 0\nmax-table-size 7\nreport-only\n}");
  EXPECT_EQ(textsOf(all.zones), Texts{"example.org."});
  EXPECT_EQ(all.window, 5s);
  EXPECT_EQ(all.ipv4_prefix, 32);
  EXPECT_EQ(all.ipv6_prefix, 64);
  EXPECT_EQ(all.responses, (std::array<uint32_t, directive::kLimitClasses>{1, 2, 3, 4, 0}));
  EXPECT_EQ(all.requests, 6u);
  EXPECT_EQ(all.slip_ratio, 0u);
  EXPECT_EQ(all.table_size, 7u);
  EXPECT_TRUE(all.report_only);
  EXPECT_EQ(rrl("rrl {\nresponses-per-second 9\nerrors-per-second 1\n}").responses,
            (std::array<uint32_t, directive::kLimitClasses>{9, 9, 9, 9, 1}))
      << "the first is the default of the others";
}

TEST(PlanRrl, Refused) {
  for (const char* option : {"window 0", "window 1s", "ipv4-prefix-length 33", "ipv6-prefix-length 0", "slip-ratio 11",
                             "responses-per-second -1", "requests-per-second 1000001", "max-table-size 0"}) {
    EXPECT_TRUE(refused("rrl {\n" + std::string(option) + "\n}", "is no number from", 3)) << option;
  }
  EXPECT_TRUE(refused("rrl\nrrl", "once", 3));
}

TEST(PlanTcp, Options) {
  const auto limits = [](const std::string& text) {
    resolve::TcpLimits said;
    EXPECT_TRUE(only<directive::ValueDirective>(accepted(text)).limitTcp(said));
    return said;
  };
  const resolve::TcpLimits all = limits("tcp {\nmax_per_client 7\nidle 1m30s\n}");
  EXPECT_EQ(all.max_per_client, 7u);
  EXPECT_EQ(all.idle, std::chrono::seconds(90));
  EXPECT_EQ(limits("tcp {\nidle 1s\n}").max_per_client, 512u);
}

TEST(PlanTcp, Refused) {
  EXPECT_TRUE(refused("tcp 7", "Wrong"));
  EXPECT_TRUE(refused("tcp\ntcp", "once", 3));
  for (const char* number : {"0", "1000001", "-1", "x"}) {
    EXPECT_TRUE(refused("tcp {\nmax_per_client " + std::string(number) + "\n}", "is no number from 1 to 1000000", 3));
  }
  EXPECT_TRUE(refused("tcp {\nidle 10\n}", "missing unit", 3));
  for (const char* duration : {"999ms", "61m", "-5s"}) {
    EXPECT_TRUE(refused("tcp {\nidle " + std::string(duration) + "\n}", "is not from 1s to 1h", 3));
  }
  EXPECT_TRUE(refused("tcp {\nclients 7\n}", "unknown property", 3));
}

resolve::TcpLimits timeouts(const std::string& directives) {
  resolve::TcpLimits limits;
  for (const auto& [type, directive] : accepted(directives).directives) directive->limitTcp(limits);
  return limits;
}

TEST(PlanTimeouts, Options) {
  const resolve::TcpLimits all = timeouts("timeouts {\nread 10\nwrite 20\nidle 60\n}");
  EXPECT_EQ(all.firstTime(), 10s);
  EXPECT_EQ(all.writeTime(), 20s);
  EXPECT_EQ(all.idle, 60s);
  const resolve::TcpLimits twice = timeouts("timeouts {\nread 1m\n}\ntimeouts {\nwrite 24h\n}");
  EXPECT_EQ(twice.firstTime(), 1min);
  EXPECT_EQ(twice.writeTime(), 24h);
  EXPECT_EQ(twice.idle, 10s);
}

TEST(PlanTimeouts, WhatIsNotSaidIsNotLongerThanTheDefault) {
  const resolve::TcpLimits longer = timeouts("timeouts {\nidle 1h\n}");
  EXPECT_EQ(longer.idle, 1h);
  EXPECT_EQ(longer.firstTime(), 10s);
  EXPECT_EQ(longer.writeTime(), 10s);
  const resolve::TcpLimits shorter = timeouts("timeouts {\nidle 1s\n}");
  EXPECT_EQ(shorter.firstTime(), 1s);
  EXPECT_EQ(shorter.writeTime(), 1s);
  EXPECT_EQ(timeouts("tcp {\nidle 1h\n}").firstTime(), 1h) << "which stands for all three";
}

TEST(PlanTimeouts, WithTcp) {
  const resolve::TcpLimits both = timeouts("tcp {\nidle 7s\n}\ntimeouts {\nread 2s\nidle 9s\n}");
  EXPECT_EQ(both.idle, 7s);
  EXPECT_EQ(both.firstTime(), 2s);
  EXPECT_EQ(timeouts("tcp {\nmax_per_client 7\n}\ntimeouts {\nidle 9s\n}").idle, 9s);
}

TEST(PlanTimeouts, Refused) {
  EXPECT_TRUE(refused("timeouts", "without a block"));
  EXPECT_TRUE(refused("timeouts {\n}", "without a block", 3));
  EXPECT_TRUE(refused("timeouts 5s {\nread 5s\n}", "Wrong"));
  EXPECT_TRUE(refused("timeouts {\nread 10s\ngiraffe 30s\n}", "unknown property", 4));
  EXPECT_TRUE(refused("timeouts {\nread 10s 20s\nwrite 30s\n}", "Wrong", 3));
  EXPECT_TRUE(refused("timeouts {\nwrite snake\n}", "snake", 3));
  for (const char* duration : {"0s", "0", "999ms", "48h", "-5s"}) {
    EXPECT_TRUE(refused("timeouts {\nidle " + std::string(duration) + "\n}", "is not from 1s to 24h", 3));
  }
}

TEST(PlanCancel, Timeout) {
  const auto timeout = [](const std::string& text) { return directive::valuesOf(accepted(text)).cancel; };
  EXPECT_EQ(timeout("cancel"), 5001ms);
  EXPECT_EQ(timeout("cancel 5s"), 5s);
  EXPECT_EQ(timeout("cancel 1ns"), 1ms);
  EXPECT_EQ(timeout("cancel 2000000h"), 24h);
  EXPECT_EQ(timeout("cancel 5s\ncancel 7s"), 7s);
  EXPECT_EQ(timeout("cancel 5s\ncancel"), 5001ms);
}

TEST(PlanCancel, Refused) {
  EXPECT_TRUE(refused("cancel 5", "missing unit"));
  EXPECT_TRUE(refused("cancel -1s", "above 0"));
  EXPECT_TRUE(refused("cancel 0s", "above 0"));
  EXPECT_TRUE(refused("cancel 5s 6s", "Wrong"));
  EXPECT_TRUE(refused("cancel {\nx\n}", "Unexpected"));
}

TEST(PlanChaos, Texts) {
  const auto texts = [](const std::string& text) { return settings<directive::ChaosTexts>(accepted(text)); };
  EXPECT_TRUE(texts("chaos").version.starts_with("idetcd-"));
  EXPECT_EQ(texts("chaos").authors.size(), 1u);
  EXPECT_EQ(texts("chaos v2").version, "v2");
  EXPECT_EQ(texts("chaos v2").authors.size(), 1u);
  const directive::ChaosTexts all = texts("chaos v3 \"Miek Gieben\" b a b");
  EXPECT_EQ(all.version, "v3");
  EXPECT_EQ(all.authors, (Texts{"Miek Gieben", "a", "b"}));
  const directive::ChaosTexts cut = texts("chaos " + std::string(300, 'v') + ' ' + std::string(256, 'a'));
  EXPECT_EQ(cut.version.size(), 255u);
  EXPECT_EQ(cut.authors, Texts{std::string(255, 'a')});
}

TEST(PlanChaos, Refused) {
  EXPECT_TRUE(refused("chaos v2 {\nunknown\n}", "Unexpected"));
  EXPECT_TRUE(refused("chaos\nchaos", "once", 3));
}

TEST(PlanDebug, IsThereOrNot) {
  EXPECT_TRUE(directive::valuesOf(accepted("debug")).debug);
  EXPECT_TRUE(directive::valuesOf(accepted("debug\ndebug")).debug);
  EXPECT_TRUE(refused("debug off", "Wrong"));
}

TEST(PlanLocal, Prefix) {
  const auto prefix = [](const std::string& text) { return settings<directive::LocalSettings>(accepted(text)).prefix; };
  EXPECT_TRUE(prefix("local"));
  EXPECT_TRUE(prefix("local {\nlocalhost_prefix on\n}"));
  EXPECT_FALSE(prefix("local {\nlocalhost_prefix off\n}"));
  EXPECT_TRUE(refused("local x", "Wrong"));
  EXPECT_TRUE(refused("local {\nlocalhost_prefix maybe\n}", "neither on nor off", 3));
  EXPECT_TRUE(refused("local {\nx\n}", "unknown property", 3));
}

TEST(PlanForward, Defaults) {
  const auto options = forward("");
  EXPECT_EQ(textsOf(options.from), Texts{"."});
  ASSERT_EQ(options.to.size(), 1u);
  EXPECT_EQ(options.to[0].server->toString(), "192.0.2.1:53");
  EXPECT_TRUE(options.except.empty() && options.next.empty());
  EXPECT_EQ(options.failover,
            (std::vector{dns::Rcode::kFormErr, dns::Rcode::kServFail, dns::Rcode::kNotImp, dns::Rcode::kRefused}));
  EXPECT_FALSE(options.force_tcp || options.prefer_udp || options.failfast_all_unhealthy_upstreams ||
               options.trust_ad || options.use_caps_for_id);
  EXPECT_EQ(options.expire, 10s);
  EXPECT_EQ(options.max_fails, 2u);
  EXPECT_EQ(options.policy, Policy::kRandom);
  EXPECT_EQ(options.health_check.interval, 500ms);
  EXPECT_TRUE(options.health_check.recursion_desired && options.health_check.domain.isRoot());
  EXPECT_EQ(options.max_concurrent, 0u);
  EXPECT_EQ(resolver::Forwarder::kAttemptTime, 2s);
  // A client waits five seconds. As many as may wait hear of a failure within them, though it leaves for one after
  // another.
  using Pace = resolver::LateAnswers;
  const std::chrono::milliseconds all_told(static_cast<std::ptrdiff_t>(options.max_waiting) * Pace::kLeast /
                                           Pace::kBytesPerMillisecond);
  EXPECT_LT(resolver::Forwarder::kTotalTime + all_told, 5s);
}

TEST(PlanForward, FromAndTo) {
  const auto options = forwards("forward 10.1.0.0/16 192.0.2.1:5353 dns://[2001:db8::1]:54 tls://192.0.2.2").at(0);
  EXPECT_EQ(textsOf(options.from), Texts{"1.10.in-addr.arpa."});
  ASSERT_EQ(options.to.size(), 3u);
  EXPECT_EQ(options.to[0].server->toString(), "192.0.2.1:5353");
  EXPECT_EQ(options.to[1].server->toString(), "[2001:db8::1]:54");
  EXPECT_EQ(options.to[2].server->toString(), "tls://192.0.2.2:853");
  EXPECT_EQ(forwards("forward a. 192.0.2.1\nforward . 192.0.2.2").size(), 2u);
  for (const char* to : {"192.0.2.1.5", "grpc://192.0.2.1", "https://192.0.2.1/path", "0.0.0.0", "::", "224.0.0.1",
                         "192.0.2.1:0", "192.0.2.1:65536", "nowhere/resolv.conf", "tls://", "tls://a..b"}) {
    EXPECT_TRUE(refused(std::string("forward . ") + to, to));
  }
  EXPECT_TRUE(refused("forward", "Wrong argument count"));
  EXPECT_TRUE(refused("forward .", "Wrong argument count"));
  EXPECT_TRUE(refused("forward a..b 192.0.2.1", "a..b"));
}

TEST(PlanForward, Options) {
  const auto options = forward(
      "except a. b.example\nforce_tcp\nprefer_udp\nexpire 1m\nmax_fails 0\npolicy sequential\nmax_concurrent 7\n"
      "health_check 2s no_rec domain example.org\nnext NXDOMAIN refused\nfailover ServFail NXDOMAIN\nfailover "
      "REFUSED\nfailfast_all_unhealthy_upstreams");
  EXPECT_EQ(textsOf(options.except), (Texts{"a.", "b.example."}));
  EXPECT_TRUE(options.force_tcp && options.prefer_udp && options.failfast_all_unhealthy_upstreams);
  EXPECT_TRUE(forward("trust-ad").trust_ad);
  EXPECT_TRUE(forward("use_caps_for_id").use_caps_for_id);
  EXPECT_EQ(options.expire, 60s);
  EXPECT_EQ(options.max_fails, 0u);
  EXPECT_EQ(options.policy, Policy::kSequential);
  EXPECT_EQ(options.max_concurrent, 7u);
  EXPECT_EQ(options.health_check.interval, 2s);
  EXPECT_FALSE(options.health_check.recursion_desired);
  EXPECT_EQ(options.health_check.domain.toString(), "example.org.");
  EXPECT_EQ(options.next, (std::vector{dns::Rcode::kNxDomain, dns::Rcode::kRefused}));
  EXPECT_EQ(options.failover, (std::vector{dns::Rcode::kServFail, dns::Rcode::kNxDomain, dns::Rcode::kRefused}))
      << "in the place of the default";
  EXPECT_EQ(forward("policy round_robin").policy, Policy::kRoundRobin);
  EXPECT_EQ(forward("health_check 1ns").health_check.interval, 1ms) << "rounded up: zero would be none";
}

TEST(PlanForward, OptionsOfCoreDns114) {
  const auto options = forward(
      "max_age 5m\nmax_idle_conns 3\nread_timeout 500ms\nsource_address 127.0.0.2\nmax_connect_attempts 2\n"
      "next_on_nodata");
  EXPECT_EQ(options.max_age, 5min);
  EXPECT_EQ(options.max_idle_conns, 3u);
  EXPECT_EQ(options.attempt_time, 500ms);
  EXPECT_EQ(options.source_address->toString(), "127.0.0.2");
  EXPECT_EQ(options.max_connect_attempts, 2u);
  EXPECT_TRUE(options.next_on_nodata);
  const auto plain = forward("");
  EXPECT_TRUE(plain.max_age == 0s && plain.max_idle_conns == 0 && plain.attempt_time == 2s && !plain.source_address &&
              plain.max_connect_attempts == 0 && !plain.next_on_nodata);
}

TEST(PlanForward, Hosts) {
  const auto options = forward("resolver 192.0.2.53 [2001:db8::1]:54\nresolver 192.0.2.54", "dns.example:54");
  EXPECT_EQ(options.to[0].host->name.toString(), "dns.example.");
  ASSERT_EQ(options.resolvers.size(), 3u);
  EXPECT_EQ(options.resolvers[0].toString(), "192.0.2.53:53");
  EXPECT_EQ(options.resolvers[1].toString(), "[2001:db8::1]:54");
  EXPECT_TRUE(forward("", "dns.example").resolvers.empty());
}

TEST(PlanForward, ServersOfTheirOwnNames) {
  const auto to =
      forwards("forward . tls://192.0.2.1%dns.example:8853 tls://[2001:db8::1%b.example] tls://192.0.2.2").at(0).to;
  EXPECT_EQ(to[0].server->server_name, "dns.example");
  EXPECT_EQ(to[0].server->address.port, 8853);
  EXPECT_EQ(to[1].server->server_name, "b.example");
  EXPECT_EQ(to[2].server->server_name, "");
  EXPECT_TRUE(
      refused("forward . tls://192.0.2.1%dns.example {\ntls_servername b.example\n}", "both tls_servername", 4));
}

TEST(PlanForward, Tls) {
  const auto files = [](const std::string& option) {
    const auto tls = forward(option, "tls://192.0.2.1").tls;
    return Texts{tls.certificate_file, tls.key_file, tls.ca_file, tls.server_name};
  };
  EXPECT_EQ(files("tls"), (Texts{"", "", "", ""}));
  EXPECT_EQ(files("tls ca"), (Texts{"", "", "ca", ""}));
  EXPECT_EQ(files("tls cert key"), (Texts{"cert", "key", "", ""}));
  EXPECT_EQ(files("tls cert key ca\ntls_servername dns.example"), (Texts{"cert", "key", "ca", "dns.example"}));
}

TEST(PlanForward, Https) {
  const auto method = [](const std::string& option) { return forward(option, "https://192.0.2.1").doh_method; };
  EXPECT_EQ(method("force_tcp"), resolver::DohMethod::kPost);
  EXPECT_EQ(method("doh_method GET"), resolver::DohMethod::kGet);
  EXPECT_EQ(method("doh_method get"), resolver::DohMethod::kGet);
  EXPECT_EQ(method("doh_method POST"), resolver::DohMethod::kPost);
  const auto to = forwards("forward . https://192.0.2.1%dns.example:8443 https://dns.example").at(0).to;
  EXPECT_EQ(to[0].server->toString(), "https://192.0.2.1:8443");
  EXPECT_EQ(to[0].server->server_name, "dns.example");
  EXPECT_EQ(to[1].host->port, 443);
}

TEST(PlanForward, BadOptions) {
  const std::pair<const char*, const char*> cases[] = {
      {"nosuch", "unknown property 'nosuch'"},
      {"except", "Wrong argument count"},
      {"failover", "Wrong argument count"},
      {"failover NOSUCH", "NOSUCH is not a valid rcode"},
      {"failover SERVFAIL noerror", "NOERROR cannot be used in failover"},
      {"except a..b", "a..b"},
      {"force_tcp yes", "Wrong argument count"},
      {"prefer_udp yes", "Wrong argument count"},
      {"trust-ad yes", "Wrong argument count"},
      {"failfast_all_unhealthy_upstreams yes", "Wrong argument count"},
      {"expire", "Wrong argument count"},
      {"expire soon", "soon"},
      {"expire -1s", "negative"},
      {"max_age -1s", "negative"},
      {"max_idle_conns -1", "-1"},
      {"max_connect_attempts many", "many"},
      {"read_timeout 0s", "above 0"},
      {"read_timeout -1s", "negative"},
      {"resolver", "Wrong argument count"},
      {"resolver dns.example", "dns.example"},
      {"resolver tls://192.0.2.1", "tls://192.0.2.1"},
      {"source_address", "Wrong argument count"},
      {"source_address eth0", "eth0"},
      {"source_address 0.0.0.0", "0.0.0.0"},
      {"source_address fe80::1", "fe80::1"},
      {"next_on_nodata yes", "Wrong argument count"},
      {"max_fails -1", "-1"},
      {"max_fails many", "many"},
      {"max_concurrent -1", "-1"},
      {"max_concurrent 1e3", "1e3"},
      {"tls a b c d", "Wrong argument count"},
      {"tls_servername", "Wrong argument count"},
      {"doh_method", "Wrong argument count"},
      {"doh_method PUT", "unknown doh_method 'PUT'"},
      {"policy", "Wrong argument count"},
      {"policy best", "unknown policy 'best'"},
      {"health_check", "Wrong argument count"},
      {"health_check no_rec", "no_rec"},
      {"health_check -1s", "negative"},
      {"health_check 1s domain", "domain"},
      {"health_check 1s domain a..b", "a..b"},
      {"health_check 1s always", "always"},
      {"next", "Wrong argument count"},
      {"next NOSUCH", "NOSUCH is not a valid rcode"},
  };
  for (const auto& [option, why] : cases) EXPECT_TRUE(forwardRefused(option, why));
  EXPECT_TRUE(refused("forward . 192.0.2.1 {\nexpire 30s\nmax_age 10s\n}", "longer than max_age", 5));
  EXPECT_EQ(forwards("forward . 192.0.2.1 {\nmax_age 5s\n}").size(), 1u) << "expire was not asked for";
}

TEST(PlanCache, Defaults) {
  const auto plan = cache("cache");
  const auto& options = plan.options;
  EXPECT_EQ(options.success.capacity, 9984u);
  EXPECT_EQ(options.denial.capacity, 9984u);
  EXPECT_EQ(options.success.max_ttl_seconds, 3600u);
  EXPECT_EQ(options.denial.max_ttl_seconds, 1800u);
  EXPECT_EQ(options.success.min_ttl_seconds, 5u);
  EXPECT_EQ(options.denial.min_ttl_seconds, 5u);
  EXPECT_EQ(options.prefetch.amount, 0u);
  EXPECT_EQ(options.prefetch.gap, 1min);
  EXPECT_EQ(options.prefetch.percentage, 10u);
  EXPECT_EQ(options.serve_stale, 0s);
  EXPECT_EQ(options.failure_ttl, 5s);
  EXPECT_FALSE(options.keep_ttl || plan.verify_stale);
  EXPECT_EQ(textsOf(plan.zones), Texts{"."});
}

TEST(PlanCache, Options) {
  const auto plan = cache(
      "cache 60 a. b. {\nsuccess 10 20 3\ndenial 40 50 6\nprefetch 2 5s 20%\n"
      "serve_stale 2h verify\nservfail 5m\nkeepttl\n}");
  const auto& options = plan.options;
  EXPECT_EQ(textsOf(plan.zones), (Texts{"a.", "b."}));
  EXPECT_EQ(options.success.capacity, 10u);
  EXPECT_EQ(options.success.max_ttl_seconds, 20u);
  EXPECT_EQ(options.success.min_ttl_seconds, 3u);
  EXPECT_EQ(options.denial.capacity, 40u);
  EXPECT_EQ(options.denial.max_ttl_seconds, 50u);
  EXPECT_EQ(options.denial.min_ttl_seconds, 6u);
  EXPECT_EQ(options.prefetch.amount, 2u);
  EXPECT_EQ(options.prefetch.gap, 5s);
  EXPECT_EQ(options.prefetch.percentage, 20u);
  EXPECT_EQ(options.serve_stale, 2h);
  EXPECT_TRUE(plan.verify_stale && options.keep_ttl);
  EXPECT_EQ(options.failure_ttl, 5min);
  EXPECT_EQ(cache("cache {\nserve_stale\n}").options.serve_stale, 1h);
  EXPECT_EQ(cache("cache {\nserve_stale 1ms immediate\n}").options.serve_stale, 1s) << "rounded up";
  EXPECT_EQ(cache("cache 30").options.denial.max_ttl_seconds, 30u);
  EXPECT_TRUE(cache("cache {\nnxdomain_cut\n}").options.nxdomain_cut);
  EXPECT_FALSE(cache("cache").options.nxdomain_cut);
  EXPECT_EQ(textsOf(cache("cache {\ndisable success\n}").options.success.disabled), Texts{"."});
  EXPECT_EQ(textsOf(cache("cache {\ndisable denial a. b.\ndisable denial c.\n}").options.denial.disabled),
            (Texts{"a.", "b.", "c."}));
  EXPECT_TRUE(cache("cache {\ndisable denial a.\n}").options.success.disabled.empty());
}

TEST(PlanCache, ServeStale) {
  const auto stale = [](const std::string& arguments) { return cache("cache {\nserve_stale " + arguments + "\n}"); };
  const auto plain = stale("");
  EXPECT_EQ(plain.stale_ttl, 30s);
  EXPECT_EQ(plain.verify_time, 1800ms);
  EXPECT_EQ(plain.options.recheck, 30s);
  EXPECT_EQ(stale("1h20m").options.serve_stale, 80min);
  for (const char* mode : {"verify", "VERIFY", "Verify"}) EXPECT_TRUE(stale(std::string("0 ") + mode).verify_stale);
  for (const char* mode : {"immediate", "IMMEDIATE"}) EXPECT_FALSE(stale(std::string("0 ") + mode).verify_stale);
  const auto immediate = stale("1h immediate 40s 1m");
  EXPECT_EQ(immediate.stale_ttl, 40s);
  EXPECT_EQ(immediate.options.recheck, 1min);
  const auto verify = stale("1h verify 100ms 0 0");
  EXPECT_EQ(verify.verify_time, 100ms);
  EXPECT_EQ(verify.stale_ttl, 0s);
  EXPECT_EQ(verify.options.recheck, 0s);
  EXPECT_EQ(stale("1h verify 1ns").verify_time, 1ms) << "rounded up";
  EXPECT_FALSE(plain.options.prefer_positive);
  EXPECT_TRUE(stale("1h\nserve_stale_policy prefer_positive").options.prefer_positive);
  EXPECT_TRUE(stale("1h\nserve_stale_policy PREFER_POSITIVE").options.prefer_positive);
  EXPECT_TRUE(refused("cache {\nserve_stale_policy prefer_positive\n}", "needs serve_stale", 4));
  EXPECT_TRUE(refused("cache {\nserve_stale\nserve_stale_policy prefer_positive\nserve_stale_policy prefer_positive\n}",
                      "once", 5));
}

TEST(PlanCache, BadOptions) {
  EXPECT_TRUE(refused("cache 0", "zero or negative"));
  EXPECT_TRUE(refused("cache a..b", "a..b"));
  EXPECT_TRUE(refused("cache\ncache", "once", 3));
  const std::pair<const char*, const char*> cases[] = {
      {"nosuch", "unknown property 'nosuch'"},
      {"success", "Wrong argument count"},
      {"success many", "many"},
      {"success 1 2 3 4", "Wrong argument count"},
      {"success 1 0", "zero or negative"},
      {"denial 1 5 6", "larger than the largest"},
      {"prefetch", "Wrong argument count"},
      {"prefetch -1", "positive"},
      {"prefetch 1 soon", "soon"},
      {"prefetch 1 1m 9%", "[10%, 90%]"},
      {"prefetch 1 1m 91%", "[10%, 90%]"},
      {"prefetch 1 1m 50", "[10%, 90%]"},
      {"serve_stale -1s", "negative"},
      {"serve_stale 1h never", "refresh mode: never"},
      {"serve_stale 20", "missing unit"},
      {"serve_stale 0 after nono", "nono"},
      {"serve_stale 1h verify 0", "above 0"},
      {"serve_stale 1h verify -1s", "negative"},
      {"serve_stale 1h verify 1s 30s 6m", "over 5 minutes"},
      {"serve_stale 1h immediate 30s 301s", "over 5 minutes"},
      {"serve_stale 1h immediate 30s 30s 30s", "Wrong argument count"},
      {"serve_stale 1h verify 1s 30s 30s 30s", "Wrong argument count"},
      {"serve_stale_policy", "Wrong argument count"},
      {"serve_stale_policy prefer_negative", "prefer_negative"},
      {"servfail", "Wrong argument count"},
      {"servfail -1s", "negative"},
      {"servfail 301s", "over 5 minutes"},
      {"disable", "Wrong argument count"},
      {"disable all", "success or denial"},
      {"disable success a..b", "a..b"},
      {"keepttl 1", "Wrong argument count"},
      {"nxdomain_cut 1", "Wrong argument count"},
  };
  for (const auto& [option, why] : cases) EXPECT_TRUE(refused(std::string("cache {\n") + option + "\n}", why, 3));
}

TEST(PlanHosts, Options) {
  const auto plain = hosts("hosts");
  EXPECT_EQ(plain.file, "/etc/hosts");
  EXPECT_EQ(plain.ttl_seconds, 3600u);
  EXPECT_EQ(plain.reload, 5s);
  EXPECT_TRUE(!plain.no_reverse && plain.fallthrough.empty() && plain.inline_lines.empty());
  EXPECT_EQ(textsOf(plain.zones), Texts{"."}) << "the block's";

  const auto options = hosts("hosts /x a. b. {\n192.0.2.1 c d\n::1 e\nttl 9\nno_reverse\nreload 1m\nfallthrough f.\n}");
  EXPECT_EQ(options.file, "/x");
  EXPECT_EQ(textsOf(options.zones), (Texts{"a.", "b."}));
  EXPECT_EQ(options.inline_lines, (Texts{"192.0.2.1 c d", "::1 e"}));
  EXPECT_EQ(options.ttl_seconds, 9u);
  EXPECT_TRUE(options.no_reverse);
  EXPECT_EQ(options.reload, 1min);
  EXPECT_EQ(textsOf(options.fallthrough), Texts{"f."});
  EXPECT_EQ(textsOf(hosts("hosts {\nfallthrough\n}").fallthrough), Texts{"."});
  EXPECT_TRUE(hosts("hosts {\nfallthrough\nfallthrough_unsupported\n}").fallthrough_unsupported);
  EXPECT_EQ(hosts("hosts {\nreload 1us\n}").reload, 1ms) << "rounded up: zero means never";
  EXPECT_EQ(hosts("hosts {\nreload 0\n}").reload, 0ms);
}

TEST(PlanFile, Options) {
  const auto files = [](const std::string& text) { return settings<std::vector<directive::ZoneFileSettings>>(accepted(text)); };
  const auto plain = files("file db");
  ASSERT_EQ(plain.size(), 1u);
  EXPECT_EQ(plain[0].path, "db");
  EXPECT_EQ(plain[0].reload, 1min);
  EXPECT_EQ(textsOf(plain[0].zones), Texts{"."}) << "the block's";
  EXPECT_TRUE(plain[0].fallthrough.empty());
  const auto two = files("file db a. {\nreload 0\nfallthrough c.\nupstream 192.0.2.1\n}\nfile /x/db b. 192.0.2.0/24 {\nreload 30s\nfallthrough\n}");
  ASSERT_EQ(two.size(), 2u);
  EXPECT_EQ(two[0].reload, 0ms);
  EXPECT_EQ(textsOf(two[0].fallthrough), Texts{"c."});
  EXPECT_EQ(textsOf(two[1].zones), (Texts{"b.", "2.0.192.in-addr.arpa."}));
  EXPECT_EQ(textsOf(two[1].fallthrough), Texts{"."});
  EXPECT_EQ(two[1].reload, 30s);
  EXPECT_TRUE(refused("file", "Wrong argument count"));
  EXPECT_TRUE(refused("file db {\nreload\n}", "Wrong argument count", 3));
  EXPECT_TRUE(refused("file db {\nreload x\n}", "x", 3));
  EXPECT_TRUE(refused("file db {\ntransfer to *\n}", "unknown property 'transfer'", 3));
  EXPECT_TRUE(refused("file db\nfile other", "zone '.' has a file already", 3));
}

TEST(PlanTransfer, Options) {
  const auto read = [](const std::string& text) {
    return settings<std::vector<directive::TransferSettings>>(accepted(text)).front();
  };
  const auto plain = read("transfer a b {\nto 192.0.2.1 192.0.2.2:5353 2001:db8::1\nto 198.51.100.0/24 [2001:db8::2]:53\ntsig-key k.\n}");
  EXPECT_EQ(textsOf(plain.zones), (Texts{"a.", "b."}));
  EXPECT_FALSE(plain.to_all);
  EXPECT_EQ(plain.clients.size(), 5u);
  std::vector<std::string> notified;
  for (const SocketAddress& address : plain.notified) notified.push_back(address.toString());
  EXPECT_EQ(notified, (Texts{"192.0.2.1:53", "192.0.2.2:5353", "[2001:db8::1]:53", "[2001:db8::2]:53"}));
  EXPECT_EQ(plain.key, "k.");
  const auto open = read("transfer {\nto *\n}");
  EXPECT_TRUE(open.to_all && open.clients.empty() && open.notified.empty());
  EXPECT_EQ(textsOf(open.zones), Texts{"."});
  EXPECT_TRUE(refused("transfer", "transfer needs `to`"));
  EXPECT_TRUE(refused("transfer {\nto\n}", "Wrong argument count", 3));
  EXPECT_TRUE(refused("transfer {\nto ns.example\n}", "'ns.example' is no IP address", 3));
}

TEST(PlanSecondary, Options) {
  const auto read = [](const std::string& text) {
    return settings<std::vector<directive::SecondarySettings>>(accepted(text)).front();
  };
  const auto plain = read("secondary a {\ntransfer from 192.0.2.1 [2001:db8::1]:5353\nfallthrough\ntsig-key k.\n}");
  EXPECT_EQ(textsOf(plain.zones), Texts{"a."});
  EXPECT_EQ(plain.primaries.size(), 2u);
  EXPECT_EQ(textsOf(plain.fallthrough), Texts{"."});
  EXPECT_EQ(plain.key, "k.");
  EXPECT_TRUE(refused("secondary", "secondary needs `transfer from`"));
  EXPECT_TRUE(refused("secondary {\ntransfer to 192.0.2.1\n}", "a transfer is `from` primaries", 3));
  EXPECT_TRUE(refused("secondary {\ntransfer from x\n}", "'x' is no IP address", 3));
  EXPECT_TRUE(refused("secondary {\ntransfer from 192.0.2.1\n}\nsecondary {\ntransfer from 192.0.2.1\n}",
                      "zone '.' has primaries already", 7));
}

TEST(PlanTsig, Options) {
  EXPECT_FALSE(accepted("tsig {\nsecret k. YWJj\nsecret l. YWJj hmac-sha512\nrequire AXFR IXFR\n}").directives.empty());
  EXPECT_TRUE(refused("tsig", "tsig needs a secret"));
  EXPECT_TRUE(refused("tsig {\nsecret k.\n}", "", 3));
  EXPECT_TRUE(refused("tsig {\nsecret k. ?\n}", "the secret of key 'k.' is not in base64", 3));
  EXPECT_TRUE(refused("tsig {\nsecret k. YWJj md5\n}", "'md5' is none of hmac-sha1", 3));
  EXPECT_TRUE(refused("tsig {\nsecret k. YWJj\nrequire x\n}", "'x' is no type", 4));
  EXPECT_TRUE(refused("tsig {\nsecret k. YWJj\nrequire all A\n}", "all and none stand alone", 4));
}

TEST(PlanAuto, Options) {
  const auto read = [](const std::string& text) { return settings<directive::AutoSettings>(accepted(text)); };
  const auto plain = read("auto {\ndirectory /zones\n}");
  EXPECT_EQ(plain.directory, "/zones");
  EXPECT_EQ(plain.pattern, R"(db\.(.*))");
  EXPECT_EQ(plain.origin, "{1}");
  EXPECT_EQ(plain.reload, 1min);
  EXPECT_EQ(textsOf(plain.zones), Texts{"."}) << "the block's";
  const auto all = read("auto org. net. {\ndirectory zones (.*)[.]zone {1}\nreload 0\nupstream\n}");
  EXPECT_EQ(textsOf(all.zones), (Texts{"org.", "net."}));
  EXPECT_EQ(all.pattern, "(.*)[.]zone");
  EXPECT_EQ(all.reload, 0ms);
  EXPECT_TRUE(refused("auto", "needs a directory"));
  EXPECT_TRUE(refused("auto {\ndirectory\n}", "Wrong argument count", 3));
  EXPECT_TRUE(refused("auto {\ndirectory a b\n}", "a REGEXP needs an ORIGIN_TEMPLATE", 3));
  EXPECT_TRUE(refused("auto {\ndirectory a .* {1}\n}", "'.*' has no group", 3));
  EXPECT_TRUE(refused("auto {\ndirectory a ( {1}\n}", "no regular expression", 3));
}

TEST(PlanBind, AddressesAndInterfaces) {
  const resolve::Block block = accepted("bind 127.0.0.1 ::1 eth0.100 {\nexcept 127.0.0.2 lo\n}");
  const auto plan = settings<directive::BindSettings>(block);
  EXPECT_EQ(plan.listen, (Texts{"127.0.0.1", "::1", "eth0.100"}));
  EXPECT_EQ(plan.except, (Texts{"127.0.0.2", "lo"}));
  for (const char* text :
       {"300.1.1.1", "1.2.3", "127.0.0.1:53", "[::1]", "::1:x", "127.0.0.1/8", "sixteen-letters-", "\"\"", "\"a b\""}) {
    EXPECT_TRUE(refused(std::string("bind ") + text, "not an IP address or the name of an interface"));
    EXPECT_TRUE(refused(std::string("bind lo {\nexcept ") + text + "\n}", "not an IP address", 3));
  }
  EXPECT_TRUE(refused("bind", "Wrong argument count"));
  EXPECT_TRUE(refused("bind lo {\nonly lo\n}", "unknown property 'only'", 3));
}

TEST(PlanBlock, Dns64) {
  const auto settings = [](const std::string& text) { return app::settings<resolver::Dns64::Options>(accepted(text)); };
  const auto embedded = [](const resolver::Dns64::Options& from) {
    const std::array<uint8_t, 4> v4{192, 0, 2, 1};
    return IpAddress::v6(from.prefix.embed(v4)).toString();
  };
  const resolver::Dns64::Options plain = settings("dns64");
  EXPECT_EQ(embedded(plain), "64:ff9b::c000:201");
  EXPECT_FALSE(plain.translate_all || plain.allow_ipv4);
  EXPECT_EQ(embedded(settings("dns64 2001:db8:64::/96")), "2001:db8:64::c000:201");
  const resolver::Dns64::Options full = settings("dns64 {\nprefix 2001:db8:1::/96\ntranslate_all\nallow_ipv4\n}");
  EXPECT_EQ(embedded(full), "2001:db8:1::c000:201");
  EXPECT_TRUE(full.translate_all && full.allow_ipv4);
  EXPECT_TRUE(refused("dns64 64:ff9b::/95", "32, 40, 48, 56, 64 or 96"));
  EXPECT_TRUE(refused("dns64 192.0.2.0/24", "no IPv6 prefix"));
  EXPECT_TRUE(refused("dns64 a b", "Wrong"));
  EXPECT_TRUE(refused("dns64 {\nprefix\n}", "write: prefix PREFIX", 3));
  EXPECT_TRUE(refused("dns64 {\ntranslate_all 1\n}", "Wrong", 3));
  EXPECT_TRUE(refused("dns64 {\nallow_ipv6\n}", "unknown property 'allow_ipv6'", 3));
  EXPECT_TRUE(refused("dns64\ndns64", "once in a server block", 3));
}

TEST(PlanBlock, Zonelimit) {
  const auto options = [](const std::string& text) {
    return *directive::valuesOf(accepted(text)).zonelimit;
  };
  const resolver::ZoneLimiter::Options plain = options("zonelimit");
  EXPECT_EQ(plain.outstanding, 200u);
  EXPECT_TRUE(plain.zones.size() == 1 && plain.zones.front().isRoot() && plain.suffixes.empty()) << "the block's";
  const auto full = options("zonelimit 50 example.org example.net {\nsuffix dyn.example.org\nsuffix a. b.\n}");
  EXPECT_EQ(full.outstanding, 50u);
  EXPECT_EQ(full.zones.size(), 2u);
  EXPECT_EQ(full.suffixes.size(), 3u);
  EXPECT_EQ(options("zonelimit example.org").zones.size(), 1u);
  EXPECT_TRUE(refused("zonelimit 0", "no number from 1 to 1000000"));
  EXPECT_TRUE(refused("zonelimit 1 a..b", "a..b"));
  EXPECT_TRUE(refused("zonelimit {\nsuffix\n}", "write: suffix NAMES...", 3));
  EXPECT_TRUE(refused("zonelimit {\nqps 1\n}", "unknown property 'qps'", 3));
  EXPECT_TRUE(refused("zonelimit\nzonelimit", "once in a server block", 3));
}

TEST(PlanBlock, Private) {
  const auto settings = [](const std::string& text) {
    return app::settings<resolver::PrivateSettings>(accepted(text));
  };
  const resolver::PrivateSettings plain = settings("private");
  EXPECT_TRUE(plain.zones.size() == 1 && plain.zones.front().isRoot()) << "the block's";
  EXPECT_TRUE(plain.allowed.empty() && plain.networks.empty() && !plain.allow_loopback);
  const resolver::PrivateSettings full = settings(
      "private example.org example.net {\nallow a.example.org b.example.org\nallow c.example.org\n"
      "allow_loopback\nnetwork 10.0.0.0/8 fd00::/8\nnetwork 192.0.2.1\n}");
  EXPECT_EQ(full.zones.size(), 2u);
  EXPECT_EQ(full.allowed.size(), 3u);
  EXPECT_EQ(full.networks.size(), 3u);
  EXPECT_TRUE(full.allow_loopback);
  EXPECT_TRUE(refused("private {\nallow\n}", "write: allow ZONES...", 3));
  EXPECT_TRUE(refused("private {\nallow_loopback x\n}", "Wrong", 3));
  EXPECT_TRUE(refused("private {\nnetwork\n}", "Wrong", 3));
  EXPECT_TRUE(refused("private {\nnetwork 10.0.0.0/33\n}", "illegal CIDR notation '10.0.0.0/33'", 3));
  EXPECT_TRUE(refused("private {\npublic\n}", "unknown property 'public'", 3));
  EXPECT_TRUE(refused("private\nprivate", "once in a server block", 3));
}

TEST(PlanBlock, SmallDirectives) {
  EXPECT_EQ(dns::kDefaultUdpPayload, 1232u);
  EXPECT_EQ(bufsize("bufsize"), 1232u);
  EXPECT_EQ(bufsize("bufsize 512"), 512u);
  EXPECT_EQ(bufsize("bufsize 4096"), 4096u);
  EXPECT_EQ(settings<directive::NsidSettings>(accepted("nsid")).data, "");
  EXPECT_EQ(settings<directive::NsidSettings>(accepted("nsid a b")).data, "a b");
  EXPECT_EQ(only<directive::ValueDirective>(accepted("workers 3")).workerCount(), 3u);
  EXPECT_TRUE(has<resolve::Configured<std::vector<directive::ErrorLog::Consolidation>>>("errors") && has<resolve::Configured<std::vector<directive::ErrorLog::Consolidation>>>("errors stdout"));
  EXPECT_TRUE(directive::valuesOf(accepted("any")).any && resolver::settingsOf(accepted("loop")).detects_loops &&
              directive::valuesOf(accepted("minimal")).minimal && directive::valuesOf(accepted("whoami")).whoami);
  EXPECT_TRUE(directive::valuesOf(accepted("loadbalance")).loadbalance &&
              directive::valuesOf(accepted("loadbalance round_robin")).loadbalance);
  const resolve::Block balanced = accepted("loadbalance {\nprefer 10.0.0.0/8 2001:db8::/32\nprefer 192.0.2.1\n}");
  ASSERT_EQ(directive::valuesOf(balanced).preferred.size(), 3u);
  EXPECT_EQ(directive::valuesOf(balanced).preferred[1].prefix_length, 32);
  EXPECT_TRUE(refused("loadbalance {\nprefer invalid\n}", "illegal CIDR notation 'invalid'", 3));
  EXPECT_TRUE(refused("loadbalance {\nprefer\n}", "Wrong", 3));
  EXPECT_TRUE(refused("loadbalance round_robin {\nreload 10s\n}", "unknown property 'reload'", 3));
  const std::pair<const char*, const char*> cases[] = {
      {"bufsize 511", "512 - 4096"},
      {"bufsize 4097", "512 - 4096"},
      {"bufsize large", "512 - 4096"},
      {"bufsize 512 512", "Wrong"},
      {"workers", "Wrong"},
      {"workers 0", "1 to 256"},
      {"any x", "Wrong"},
      {"loop x", "Wrong"},
      {"minimal x", "Wrong"},
      {"whoami x", "Wrong"},
      {"loadbalance weighted /x", "'weighted' is not supported"},
      {"loadbalance round_robin x", "Wrong"},
      {"errors /var/log/x", "not supported"},
      {"errors stdout x", "Wrong"},
      {"errors visible", "not supported"},
  };
  for (const auto& [directive, why] : cases) EXPECT_TRUE(refused(directive, why));
  EXPECT_TRUE(refused("log {\nclass some\n}", "some", 3));
}

TEST(PlanPrometheus, Options) {
  const auto address = [](const std::string& directive) {
    return settings<directive::PrometheusSettings>(accepted(directive)).address.toString();
  };
  EXPECT_EQ(address("prometheus"), "localhost:9153");
  EXPECT_EQ(address("prometheus localhost:53"), "localhost:53");
  EXPECT_EQ(address("prometheus :9153"), ":9153");
  EXPECT_EQ(address("prometheus [::1]:9153"), "[::1]:9153");
  EXPECT_EQ(address("prometheus {\nruntime_metrics\n}"), "localhost:9153");
  EXPECT_EQ(address("prometheus localhost:53 {\nruntime_metrics\n}"), "localhost:53");
  EXPECT_TRUE(refused("prometheus {}", "no port"));
  EXPECT_TRUE(refused("prometheus /foo", "no port"));
  EXPECT_TRUE(refused("prometheus a b c", "Wrong"));
  EXPECT_TRUE(refused("prometheus {\nruntime_metrics extra\n}", "Wrong", 3));
  EXPECT_TRUE(refused("prometheus {\ntls x\n}", "unknown property 'tls'", 3));
  EXPECT_TRUE(refused("prometheus\nprometheus", "once in a server block", 3));
}

TEST(PlanAdmin, Options) {
  const auto address = [](const std::string& directive) {
    return settings<directive::AdminSettings>(accepted(directive)).address.toString();
  };
  EXPECT_EQ(address("admin"), "localhost:9154");
  EXPECT_EQ(address("admin :9155"), ":9155");
  EXPECT_EQ(address("admin [::1]:9155"), "[::1]:9155");
  EXPECT_TRUE(refused("admin /page", "no port"));
  EXPECT_TRUE(refused("admin a:1 b:1", "Wrong"));
  EXPECT_TRUE(refused("admin {\n}", "Unexpected token '{'"));
  EXPECT_TRUE(refused("admin\nadmin", "once in a server block", 3));
}

TEST(PlanErrors, Options) {
  using Level = directive::ErrorLog::Level;
  const auto consolidation = [](const std::string& arguments) {
    const resolve::Block block = accepted("errors {\nconsolidate " + arguments + "\n}");
    return settings<std::vector<directive::ErrorLog::Consolidation>>(block).at(0);
  };
  const auto plain = consolidation("1m \"format error\"");
  EXPECT_EQ(plain.period, 1min);
  EXPECT_EQ(plain.pattern, "format error");
  EXPECT_TRUE(plain.level == Level::kError && !plain.show_first);
  const std::pair<const char*, Level> levels[] = {
      {"debug", Level::kDebug}, {"info", Level::kInfo}, {"warning", Level::kWarning}, {"error", Level::kError}};
  for (const auto& [word, level] : levels) {
    EXPECT_EQ(consolidation(std::string("1m .* ") + word).level, level);
    const auto shown = consolidation(std::string("1m .* ") + word + " show_first");
    EXPECT_TRUE(shown.level == level && shown.show_first);
  }
  EXPECT_TRUE(consolidation("1m .* show_first").show_first);
  const resolve::Block several = accepted("errors {\nstacktrace\nconsolidate 1m error1\nconsolidate 5s error2 info\n}");
  EXPECT_EQ(settings<std::vector<directive::ErrorLog::Consolidation>>(several).size(), 2u);
}

TEST(PlanErrors, BadOptions) {
  EXPECT_TRUE(refused("errors\nerrors", "once", 3));
  const std::pair<const char*, const char*> cases[] = {
      {"log visible", "unknown property 'log'"},
      {"stacktrace yes", "Wrong"},
      {"consolidate", "Wrong"},
      {"consolidate 1m", "Wrong"},
      {"consolidate abc .*", "abc"},
      {"consolidate 1 .*", "missing unit"},
      {"consolidate 0s .*", "0s"},
      {"consolidate 1m ())", "regular expression"},
      {"consolidate 1m .* extra", "unknown level 'extra'"},
      {"consolidate 1m .* show_first warning", "'warning'"},
      {"consolidate 1m .* show_first show_first", "unknown level 'show_first'"},
      {"consolidate 1m .* info error", "'error'"},
      {"consolidate 1m .* info show_first 1", "Wrong"},
  };
  for (const auto& [option, why] : cases) EXPECT_TRUE(refused(std::string("errors {\n") + option + "\n}", why, 3));
}

TEST(PlanLog, Rules) {
  const auto rules = [](const std::string& directives) {
    const resolve::Block block = accepted(directives);
    std::vector<std::string> texts;
    for (const auto& rule : settings<std::vector<directive::QueryLog::Rule>>(block)) {
      texts.push_back(rule.zone.toString() + (rule.success ? " success" : "") + (rule.denial ? " denial" : "") +
                      (rule.error ? " error" : ""));
    }
    return texts;
  };
  EXPECT_EQ(rules("log"), Texts{". success denial error"});
  EXPECT_EQ(rules("log\nlog example.org {\nclass denial\nclass error\n}"),
            (Texts{". success denial error", "example.org. denial error"}));
  EXPECT_EQ(rules("log a. b. {host} {\nclass success\n}"), (Texts{"a. success", "b. success"}));
  EXPECT_EQ(rules("log . \"{\\\"name\\\": \\\"{name}\\\"}\""), Texts{". success denial error"});
  EXPECT_EQ(rules("log a. {/x}"), Texts{"a. success denial error"});
  EXPECT_TRUE(refused("log {\nclass\n}", "Wrong", 3));
  EXPECT_TRUE(refused("log {\nunknown\n}", "unknown property", 3));
}

// As CoreDNS 1.14.
TEST(PlanBlock, Tls) {
  using Auth = net::TlsServer::ClientAuth;
  const auto files = [](const std::string& text) { return settings<net::TlsServer::Options>(accepted(text)); };
  EXPECT_EQ(files("tls cert.pem key.pem"),
            (net::TlsServer::Options{.certificate_file = "cert.pem", .key_file = "key.pem", .ca_file = {}}));
  EXPECT_EQ(files("tls cert.pem key.pem ca.pem").ca_file, "ca.pem");
  const std::pair<const char*, Auth> auths[] = {{"nocert", Auth::kNone},
                                                {"request", Auth::kRequest},
                                                {"require", Auth::kRequire},
                                                {"verify_if_given", Auth::kVerifyIfGiven},
                                                {"require_and_verify", Auth::kRequireAndVerify}};
  for (const auto& [word, auth] : auths)
    EXPECT_EQ(files(std::string("tls a b {\nclient_auth ") + word + "\n}").client_auth, auth) << word;
  EXPECT_TRUE(refused("tls cert.pem", "Wrong argument count"));
  EXPECT_TRUE(refused("tls a b c d", "Wrong argument count"));
  EXPECT_TRUE(refused("tls a b {\nclient_auth always\n}", "unknown authentication type 'always'", 3));
  EXPECT_TRUE(refused("tls a b\ntls a b", "once", 3));
}

TEST(PlanBlock, WhatIsEncryptedNeedsACertificate) {
  const auto plan = makePlan("Corefile", "\ntls://. {\nwhoami\n}\n", 53);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().message,
            "Corefile:2 - Error during parsing: tls://.:853 needs a certificate in its server "
            "block; write: tls CERT KEY");
  EXPECT_TRUE(makePlan("Corefile", ". tls://. {\ntls cert.pem key.pem\n}\n", 53));
}

TEST(PlanBlock, WhatMayBeRepeated) {
  for (const std::string directive : {"cache", "errors", "hosts", "loop", "nsid"}) {
    EXPECT_TRUE(refused(directive + "\n" + directive, "once", 3)) << directive;
  }
  for (const std::string directive : {"acl {\nallow\n}", "any", "bind 127.0.0.1", "bufsize", "forward . 192.0.2.1",
                                      "loadbalance", "log", "minimal", "whoami"}) {
    EXPECT_FALSE(accepted(directive + "\n" + directive).directives.empty()) << directive;
  }
}

TEST(PlanBlock, WhatCoreDnsAloneHasIsRefused) {
  for (const char* name : {"pprof", "kubernetes", "grpc_server", "proxyproto", "shed", "geoip"}) {
    EXPECT_TRUE(
        refused(name, std::string("Unknown directive '") + name + "': CoreDNS has it, it is not supported here"));
    EXPECT_TRUE(refused(std::string("whoami\n") + name + " x {\n y\n}", "not supported", 3));
  }
  EXPECT_TRUE(refused("nonsense", "Unknown directive 'nonsense'"));
}

TEST(PlanEtcd, Options) {
  const auto read = [](const std::string& directives) { return settings<directive::EtcdSettings>(accepted(directives)); };
  const auto plain = read("etcd");
  EXPECT_EQ(plain.path, "/skydns");
  EXPECT_EQ(plain.endpoints, std::vector<std::string>{"http://localhost:2379"});
  EXPECT_EQ(plain.zones.size(), 1u) << "the block's";
  EXPECT_TRUE(plain.fallthrough.empty());
  EXPECT_EQ(plain.min_lease_ttl, std::chrono::seconds(30));
  EXPECT_EQ(plain.max_lease_ttl, std::chrono::hours(24));
  const auto all = read(
      "etcd sky.test 192.0.2.0/24 {\npath services//dns/\nendpoint https://a:1 https://b:2\ncredentials user word\ntls ca\n"
      "fallthrough sky.test\nmin-lease-ttl 60\nmax-lease-ttl 2h\nupstream\ndebug\n}");
  EXPECT_EQ(all.zones.size(), 2u);
  EXPECT_EQ(all.zones.back().toString(), "2.0.192.in-addr.arpa.");
  EXPECT_EQ(all.path, "/services/dns");
  EXPECT_EQ(all.endpoints.size(), 2u);
  EXPECT_EQ(all.credentials->user, "user");
  EXPECT_EQ(all.tls->ca_file, "ca");
  EXPECT_EQ(all.fallthrough.size(), 1u);
  EXPECT_EQ(all.min_lease_ttl, std::chrono::minutes(1));
  EXPECT_EQ(all.max_lease_ttl, std::chrono::hours(2));
  EXPECT_EQ(read("etcd {\npath /\n}").path, "");
}

TEST(PlanEtcd, WhatIsRefused) {
  EXPECT_TRUE(refused("etcd {\nstubzones\n}", "stubzones is not supported", 3));
  EXPECT_TRUE(refused("etcd {\nendpoint\n}", "Wrong argument count", 3));
  EXPECT_TRUE(refused("etcd {\nendpoint http://a:1 http://b:x\n}", "http://b:x", 3));
  EXPECT_TRUE(refused("etcd {\nendpoint http://a:1 https://b:1\n}", "with and without TLS", 4));
  EXPECT_TRUE(refused("etcd {\ncredentials user\n}", "Wrong argument count", 3));
  EXPECT_TRUE(refused("etcd {\nmin-lease-ttl 2h\nmax-lease-ttl 1h\n}", "min-lease-ttl is longer than max-lease-ttl", 5));
  EXPECT_TRUE(refused("etcd {\nnonsense\n}", "nonsense", 3));
  EXPECT_TRUE(refused("etcd\netcd", "once", 3));
}

directive::ReloadSettings reload(const std::string& directives) {
  return settings<directive::ReloadSettings>(accepted(directives));
}

const std::string kIdetcd = "idetcd {\npattern worker{{.ID}}.tf.internal.\n}\n";

TEST(PlanXdp, InterfacesAndOptions) {
  const auto xdp = [](const std::string& text) {
    return settings<directive::XdpSettings>(accepted(kIdetcd + text));
  };
  const directive::XdpSettings defaults = xdp("xdp lo");
  EXPECT_EQ(defaults.attach.interfaces, std::vector<std::string>{"lo"});
  EXPECT_EQ(defaults.attach.mode, kernel::Mode::kAny);
  EXPECT_EQ(defaults.attach.max_names, 65536u);
  EXPECT_FALSE(defaults.required);
  EXPECT_EQ(defaults.pin, "");
  const directive::XdpSettings all =
      xdp("xdp lo eth0.7 lo {\nnative\nrequired\nmax_names 1000000\npin /sys/fs/bpf/idetcd//\n}");
  EXPECT_EQ(all.attach.interfaces, (std::vector<std::string>{"lo", "eth0.7"}));
  EXPECT_EQ(all.attach.mode, kernel::Mode::kNative);
  EXPECT_EQ(all.attach.max_names, 1'000'000u);
  EXPECT_TRUE(all.required);
  EXPECT_EQ(all.pin, "/sys/fs/bpf/idetcd");
  EXPECT_EQ(xdp("xdp lo {\ngeneric\n}").attach.mode, kernel::Mode::kGeneric);
}

TEST(PlanXdp, WhatIsRefused) {
  EXPECT_TRUE(refused("xdp", "write: xdp INTERFACE..."));
  EXPECT_TRUE(refused("xdp eth/0", "not the name of an interface: 'eth/0'"));
  EXPECT_TRUE(refused("xdp an-interface-of-16", "not the name of an interface"));
  EXPECT_TRUE(refused("xdp lo {\nnative\ngeneric\n}", "native and generic exclude each other", 4));
  for (const char* number : {"63", "16000001", "-1", "many"})
    EXPECT_TRUE(refused("xdp lo {\nmax_names " + std::string(number) + "\n}", "a number from 64 to 16000000", 3));
  EXPECT_TRUE(refused("xdp lo {\npin bpf\n}", "not an absolute path: 'bpf'", 3));
  EXPECT_TRUE(refused("xdp lo\nxdp lo", "once", 3));
}

TEST(PlanXdp, WhatBlocksHaveToHave) {
  const auto problem = [](const std::string& text) {
    const auto plan = makePlan("Corefile", text, 53);
    return plan ? std::string() : plan.error().message;
  };
  EXPECT_EQ(problem(".:0 {\nxdp lo\n}\n"), "plugin/xdp: the server block has no `idetcd`");
  const std::string same = "plugin/xdp: every `xdp` of a Corefile has to say the same";
  EXPECT_EQ(problem("a:1 {\n" + kIdetcd + "xdp lo\n}\nb:1 {\n" + kIdetcd + "xdp lo\n}\n"), "");
  EXPECT_EQ(problem("a:1 {\n" + kIdetcd + "xdp lo\n}\nb:1 {\n" + kIdetcd + "xdp eth0\n}\n"), same);
  EXPECT_EQ(problem("a:1 {\n" + kIdetcd + "xdp lo\n}\nb:1 {\n" + kIdetcd + "xdp lo {\nrequired\n}\n}\n"), same);
}

// What a subcommand asks of the directive, and what it needs for that.
TEST(PlanXdp, OneThatIsPinnedCanBeWorkedOn) {
  const auto work = [](const std::string& text) {
    const auto plan = makePlan("Corefile", text, 53);
    const auto done = directive::kXdpDirective.work(plan.value().blocks, {.what = "status", .user = {}});
    return done ? *done : done.error().message;
  };
  EXPECT_EQ(work(".:0 {\nwhoami\n}\n"), "the Corefile has no `xdp`");
  EXPECT_NE(work(".:0 {\n" + kIdetcd + "xdp lo\n}\n").find("has no `pin`"), std::string::npos);
  if (kernel::hasProgram()) {
    EXPECT_EQ(work(".:0 {\n" + kIdetcd + "xdp lo {\npin /nowhere/at/all\n}\n}\n"),
              R"({"attached":false,"pin":"/nowhere/at/all","pinned":false})");
  }
}

// CoreDNS's own table, and what it leaves out. CoreDNS 1.14.1 still refuses the jitter 0s, 1.14.2 does not.
TEST(PlanReload, IntervalAndJitter) {
  using Settings = directive::ReloadSettings;
  EXPECT_EQ(reload("reload"), (Settings{.interval = 30s, .jitter = 15s}));
  EXPECT_EQ(reload("reload 10s"), (Settings{.interval = 10s, .jitter = 5s}));
  EXPECT_EQ(reload("reload 10s 2s"), (Settings{.interval = 10s, .jitter = 2s}));
  EXPECT_EQ(reload("reload 2s 0s"), (Settings{.interval = 2s, .jitter = 0s}));
  EXPECT_EQ(reload("reload 2s"), (Settings{.interval = 2s, .jitter = 1s}));
  EXPECT_EQ(reload("reload 10s 1h"), (Settings{.interval = 10s, .jitter = 5s}));
  EXPECT_EQ(reload("reload 1m30s 10s"), (Settings{.interval = 90s, .jitter = 10s}));
  const std::pair<const char*, const char*> refusals[] = {
      {"reload foo", "invalid duration \"foo\""},      {"reload 10s foo", "invalid duration \"foo\""},
      {"reload 10s 5s foo", "Wrong argument count"},   {"reload 1s", "'1s' is less than 2s"},
      {"reload 0s", "'0s' is less than 2s"},           {"reload 3s 0.5s", "'0.5s' is less than 1s, and not 0s"},
      {"reload 3s 1us", "'1us' is less than 1s"},      {"reload -10s", "'-10s' is less than 2s"},
      {"reload 10s -2s", "'-2s' is less than 1s"},     {"reload 30", "missing unit in duration \"30\""},
      {"reload {\ninterval 5s\n}", "Unexpected token"}};
  for (const auto& [directive, why] : refusals) EXPECT_TRUE(refused(directive, why)) << directive;
  EXPECT_TRUE(refused("reload 1s", "write: reload [INTERVAL] [JITTER]"));
}

directive::HealthSettings health(const std::string& directives) {
  return settings<directive::HealthSettings>(accepted(directives));
}

// CoreDNS's own table, and what it leaves out.
TEST(PlanHealth, ListensWhereItIsTold) {
  EXPECT_EQ(health("health").address.toString(), ":8080");
  EXPECT_EQ(health("health").lame_duck, 0ms);
  EXPECT_EQ(health("health localhost:1234").address.toString(), "localhost:1234");
  EXPECT_EQ(health("health [::1]:1234").address.toString(), "[::1]:1234");
  EXPECT_EQ(health("health bla:a").address.port, "a") << "whether there is such a service is seen at the start";
  EXPECT_EQ(health("health localhost:1234 {\nlameduck 4s\n}").lame_duck, 4s);
  EXPECT_TRUE(refused("health bla", "'bla': no port"));
  EXPECT_TRUE(refused("health bla bla", "Wrong argument count"));
}

TEST(PlanHealth, HasOneOption) {
  EXPECT_TRUE(refused("health {\nlameduck a\n}", "invalid duration", 3));
  EXPECT_TRUE(refused("health {\nlameduck\n}", "Wrong argument count", 3));
  EXPECT_TRUE(refused("health {\nlameduck 4s 5s\n}", "Wrong argument count", 3));
  EXPECT_TRUE(refused("health {\nlameduck -4s\n}", "'-4s' is negative", 3));
  EXPECT_TRUE(refused("health {\nlamedudk 4\n}", "unknown property 'lamedudk'", 3));
}

directive::ReadySettings ready(const std::string& directives) {
  return settings<directive::ReadySettings>(accepted(directives));
}

TEST(PlanReady, AsCoreDns) {
  using Monitor = directive::Readiness::Monitor;
  EXPECT_EQ(ready("ready").address.toString(), ":8181");
  EXPECT_EQ(ready("ready").monitor, Monitor::kUntilReady);
  EXPECT_EQ(ready("ready localhost:1234").address.toString(), "localhost:1234");
  EXPECT_EQ(ready("ready {\nmonitor until-ready\n}").monitor, Monitor::kUntilReady);
  EXPECT_EQ(ready("ready localhost:1234 {\nmonitor continuously\n}").monitor, Monitor::kContinuously);
  EXPECT_TRUE(refused("ready {\nmonitor 404\n}", "monitor type '404' not supported", 3));
  EXPECT_TRUE(refused("ready {\nmonitro continuously\n}", "unknown property 'monitro'", 3));
  EXPECT_TRUE(refused("ready localhost:1234 b", "Wrong argument count"));
  EXPECT_TRUE(refused("ready bla", "'bla': no port"));
  EXPECT_TRUE(refused("ready\nready", "ready can be used once in a server block", 3));
}

// Takes note of its turn, and fails if it is told to.
class BeforeConfinement : public resolve::Directive {
 public:
  BeforeConfinement(std::string name, std::string error, std::string* turns)
      : name_(std::move(name)), error_(std::move(error)), turns_(turns) {}
  Result<void> read(config::DirectiveCursor&, const resolve::Block&) override { return {}; }
  Result<void> beforeConfinement() override {
    *turns_ += name_;
    return error_.empty() ? Result<void>() : fail(error_);
  }

 private:
  const std::string name_;
  const std::string error_;
  std::string* const turns_;
};

TEST(Plan, EachDirectiveHasItsTurnBeforeTheConfinementUpToTheFirstError) {
  std::string turns;
  const auto planOf = [&turns](const std::string& error_of_b) {
    Plan plan;
    const auto add = [&turns](resolve::Block& block, const char* name, const std::string& error) {
      block.directives.emplace_back(nullptr, std::make_unique<BeforeConfinement>(name, error, &turns));
    };
    plan.blocks.resize(2);
    add(plan.blocks[0], "a", "");
    add(plan.blocks[0], "b", error_of_b);
    add(plan.blocks[1], "c", "");
    return plan;
  };
  EXPECT_TRUE(beforeConfinement(planOf("")));
  EXPECT_EQ(turns, "abc");
  turns.clear();
  EXPECT_EQ(beforeConfinement(planOf("plugin/b: no")).error().message, "plugin/b: no");
  EXPECT_EQ(turns, "ab");
}

TEST(Plan, WhatIsToBeADirectoryIsNothingElse) {
  const TemporaryDirectory directory;
  overwrite(directory / "file", "");
  const std::string file = directory / "file";
  const auto said = [](const std::string& block, const std::string& path) {
    const auto plan = makePlan("Corefile", ". {\n" + block + " " + path + "\n }\n}\n", 53, NamedFiles::kRead);
    return plan ? std::string() : plan.error().message;
  };
  for (const char* block : {" auto {\n directory", " cache {\n persist", " idetcd {\n pattern a{{.ID}}. \n state"}) {
    for (const std::string& path : {file, file + "/inner"})
      EXPECT_NE(said(block, path).find(path + ": Not a directory; write: "), std::string::npos) << block << said(block, path);
    for (const std::string& path : {directory.path(), directory / "missing"}) EXPECT_EQ(said(block, path), "") << block;
  }
}

TEST(Plan, DirectivesDoNothingBeforeTheConfinementUnlessTheySaySo) {
  EXPECT_TRUE(beforeConfinement(makePlan("Corefile", ".:0 {\n whoami\n}\n", 53).value()));
}

}  // namespace
}  // namespace idetcd::app
