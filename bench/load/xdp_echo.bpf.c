// The floor under every XDP program that answers DNS on lo: sets QR, appends as many bytes as an answer has, turns the
// packet around. It reads no name and knows none. IPv4 without options; compiled with -DPORT and -DPAD (bytes).
// clang-format off
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>
// clang-format on

SEC("xdp")
int echo(struct xdp_md* ctx) {
  __u8* data = (__u8*)(long)ctx->data;
  __u8* end = (__u8*)(long)ctx->data_end;
  struct ethhdr* eth = (struct ethhdr*)data;
  struct iphdr* ip = (struct iphdr*)(eth + 1);
  struct udphdr* udp = (struct udphdr*)(ip + 1);
  if ((__u8*)(udp + 1) > end || eth->h_proto != bpf_htons(ETH_P_IP)) return XDP_PASS;
  if (*(__u8*)ip != 0x45 || ip->protocol != IPPROTO_UDP || udp->dest != bpf_htons(PORT)) return XDP_PASS;
  if (bpf_xdp_adjust_tail(ctx, PAD) != 0) return XDP_ABORTED;
  data = (__u8*)(long)ctx->data;
  end = (__u8*)(long)ctx->data_end;
  eth = (struct ethhdr*)data;
  ip = (struct iphdr*)(eth + 1);
  udp = (struct udphdr*)(ip + 1);
  __u8* dns = (__u8*)(udp + 1);
  if (dns + 12 > end) return XDP_ABORTED;
  dns[2] |= 0x80;

  const __u32 address = ip->saddr;
  ip->saddr = ip->daddr;
  ip->daddr = address;
  ip->tot_len = bpf_htons(bpf_ntohs(ip->tot_len) + PAD);
  ip->check = 0;
  __u32 sum = 0;
  const __u16* word = (const __u16*)ip;
  for (int i = 0; i < 10; ++i) sum += word[i];
  sum = (sum & 0xffff) + (sum >> 16);
  ip->check = ~((sum & 0xffff) + (sum >> 16));
  const __u16 port = udp->source;
  udp->source = udp->dest;
  udp->dest = port;
  udp->len = bpf_htons(bpf_ntohs(udp->len) + PAD);
  udp->check = 0;
  return XDP_PASS;  // to this machine, as what it has become
}

char bench_license[] SEC("license") = "Apache-2.0";
