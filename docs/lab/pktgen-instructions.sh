#!/usr/bin/env bash
# How many instructions a lone pktgen thread spends on a packet under each qdisc (xmit_mode queue_xmit, a dummy device): a
# kernel of Debian runs in QEMU, which counts instructions as its clock, so no other program changes the result.
#
#   apt-get install qemu-system-x86 busybox-static cpio linux-headers-VERSION; apt-get download linux-image-VERSION
#   dpkg-deb -x linux-image-VERSION*.deb unpacked; docs/lab/pktgen-instructions.sh VERSION unpacked
#
# "without bypass" is the same qdisc with TCQ_F_CAN_BYPASS cleared: pfifo_fast was so from Linux 4.16, which made it lockless,
# to 5.13. pfifo is a qdisc with a root lock, as pfifo_fast was before.
set -euo pipefail
version=${1:-$(uname -r)} root=${2:-/}
image=$root/boot/vmlinuz-$version modules=$root/lib/modules/$version headers=/lib/modules/$version/build
for tool in qemu-system-x86_64 busybox cpio make cc tc ip; do
    command -v $tool >/dev/null || { echo "SKIP: needs $tool"; exit 0; }
done
[ -r "$image" ] && [ -d "$headers" ] || { echo "SKIP: needs kernel $version and its headers"; exit 0; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/module" "$work/root"/{bin,proc,sys}
cat >"$work/module/nobypass.c" <<'C'
#include <linux/module.h>
#include <linux/netdevice.h>
#include <net/sch_generic.h>
static int __init nobypass(void)
{
	struct net_device *dev = dev_get_by_name(&init_net, "d0");
	if (!dev)
		return -ENODEV;
	netdev_get_tx_queue(dev, 0)->qdisc->flags &= ~TCQ_F_CAN_BYPASS;
	dev_put(dev);
	return -EAGAIN; /* Done: no module stays. */
}
module_init(nobypass);
MODULE_LICENSE("Dual MIT/GPL");
C
echo "obj-m := nobypass.o" >"$work/module/Makefile"
make -s -C "$headers" M="$work/module" modules >"$work/make" 2>&1 || { cat "$work/make"; exit 1; }
cp "$modules/kernel/net/core/pktgen.ko" "$modules/kernel/drivers/net/dummy.ko" "$work/module/nobypass.ko" "$work/root"
# busybox' own tc is another one.
cp "$(command -v busybox)" "$work/root/bin/busybox"
cp "$(command -v tc)" "$work/root/bin/the-tc"
cp "$(command -v ip)" "$work/root/bin/the-ip"
ldd "$(command -v tc)" "$(command -v ip)" | grep -o '/[^ ]*\.so[^ ]*' | sort -u | while read -r library; do
    mkdir -p "$work/root$(dirname "$library")" && cp -L "$library" "$work/root$library"
done
cat >"$work/root/init" <<'INIT'
#!/bin/busybox sh
busybox mount -t proc proc /proc
busybox mount -t sysfs sys /sys
busybox insmod /dummy.ko numdummies=0 && busybox insmod /pktgen.ko
the-ip link add d0 type dummy && the-ip addr add 10.9.9.1/24 dev d0 && the-ip link set d0 up
the-ip neigh add 10.9.9.2 lladdr 2:2:2:2:2:2 dev d0
echo "add_device d0@0" >/proc/net/pktgen/kpktgend_0
for word in "pkt_size 60" "dst 10.9.9.2" "dst_mac 02:02:02:02:02:02" "xmit_mode queue_xmit" "flag NO_TIMESTAMP" "count 50000"; do
    echo "$word" >/proc/net/pktgen/d0@0
done
row() {
    echo start >/proc/net/pktgen/pgctrl
    busybox sed -n 's/.*OK: \([0-9]*\)(.*/\1/p' /proc/net/pktgen/d0@0 | while read -r us; do echo "ROW $((us / 50)) $1"; done
}
the-tc qdisc replace dev d0 root noqueue && row "noqueue"
for q in pfifo pfifo_fast; do
    the-tc qdisc replace dev d0 root $q && row "$q"
    busybox insmod /nobypass.ko 2>/dev/null
    row "$q without bypass"
done
busybox poweroff -f
INIT
chmod +x "$work/root/init"
(cd "$work/root" && find . | cpio -o -H newc 2>/dev/null) | gzip >"$work/initrd"
echo "instructions a packet"
timeout 300 qemu-system-x86_64 -accel tcg,thread=single -icount shift=0 -M pc -cpu max -smp 1 -m 512 -nographic -no-reboot \
    -kernel "$image" -initrd "$work/initrd" -append "console=ttyS0 quiet mitigations=off nokaslr" </dev/null 2>/dev/null |
    tr -d '\r' | sed -n 's/.*ROW \([0-9]* .*\)/\1/p'
