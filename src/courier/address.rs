//! Which addresses are the internet's. An endpoint's address is asked for by whoever may set up endpoints, and the
//! courier stands inside: without this it would knock at doors that are closed to the outside.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Looks names up, and refuses those that lead inside. Checked at each connection, as a name can change its mind.
pub(super) struct PublicOnly;

impl Resolve for PublicOnly {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = look_up(name.as_str()).await?;
            // One that leads inside spoils the name: which of them is tried first is not ours to say.
            if found.iter().any(|address| !is_public(address.ip())) {
                return Err(INSIDE.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The addresses of a host: a name, or an address as it stands in a URL.
pub(super) async fn look_up(host: &str) -> std::io::Result<Vec<SocketAddr>> {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    Ok(tokio::net::lookup_host((host, 0)).await?.collect())
}

/// What is said of an address that is refused.
pub(super) const INSIDE: &str = "leads to a private, loopback or link-local address";

/// Whether the internet at large reaches the address.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => is_public_v4(v4),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let special = address.is_private()
        || address.is_loopback()
        || address.is_link_local()
        || address.is_documentation()
        // This network; multicast and reserved, with broadcast.
        || a == 0
        || a >= 224
        // Carrier-grade NAT (RFC 6598), protocol assignments (RFC 6890), benchmarking (RFC 2544).
        || (a == 100 && (64..128).contains(&b))
        || (a == 192 && b == 0 && c == 0)
        || (a == 198 && (b == 18 || b == 19));
    !special
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    if let Some(v4) = address.to_ipv4_mapped() {
        return is_public_v4(v4);
    }
    let [a, b, c, d, e, f, g, h] = address.segments();
    // NAT64 (RFC 6052) leads to the IPv4 address inside.
    if [a, b, c, d, e, f] == [0x64, 0xff9b, 0, 0, 0, 0] {
        return is_public_v4(Ipv4Addr::from((u32::from(g) << 16) | u32::from(h)));
    }
    // Global unicast, without Teredo and other protocol assignments, documentation, and 6to4.
    (0x2000..0x4000).contains(&a)
        && !(a == 0x2001 && (b < 0x200 || b == 0xdb8))
        && a != 0x2002
        && !(a == 0x3fff && b < 0x1000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_leads_inside_is_not_public() {
        for inside in [
            "127.0.0.1",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "0.0.0.0",
            "100.64.0.1",
            "192.0.0.8",
            "198.18.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "::",
            "::1",
            "fe80::1",
            "fc00::1",
            "fd12::1",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "64:ff9b::a00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "2001:db8::1",
            "fec0::1",
            "::127.0.0.1",
        ] {
            assert!(!is_public(inside.parse().unwrap()), "{inside}");
        }
        for outside in ["1.1.1.1", "172.32.0.1", "100.128.0.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
        {
            assert!(is_public(outside.parse().unwrap()), "{outside}");
        }
    }
}
