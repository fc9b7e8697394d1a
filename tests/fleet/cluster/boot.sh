#!/bin/bash
# SPDX-License-Identifier: GPL-2.0-or-later
#
# Runs a Kubernetes of one node, with control plane, kubelet and containerd, in namespaces and
# cgroups of its own until stdin ends. So it ends with the test that started it, however that ends.
#
#   boot.sh boot TREE PROGRAMS   TREE is a Debian tree with containerd and etcd, PROGRAMS the
#                                directory of Kubernetes' own programs
#
# Prints the pid of the process that starts the node's first process.
set -euo pipefail

address=10.32.0.1
scratch='' name='' started=''

boot() {
	local hierarchy setting
	scratch=$(mktemp -d "${TMPDIR:-/tmp}/fusetune-cluster.XXXXXX")
	name=${scratch##*/}
	trap remove EXIT
	for hierarchy in $(hierarchies); do
		mkdir "$hierarchy/$name"
		# Nothing may run in a new cpuset until it has processors and memory.
		for setting in cpuset.cpus cpuset.mems; do
			[[ ! -e $hierarchy/tasks || ! -e $hierarchy/$setting ]] ||
				cat "$hierarchy/$setting" >"$hierarchy/$name/$setting"
		done
	done
	unshare --mount --propagation private --net --ipc --uts --pid --fork --kill-child \
		-- "$0" join "$name" "$@" "$scratch" </dev/null &
	started=$!
	echo "$started"
	# Until stdin ends, or the node does.
	while kill -0 "$started" 2>/dev/null; do
		read -r -t 1 _ || [[ $? -gt 128 ]] || break
	done
}

remove() {
	kill -KILL "$started" 2>/dev/null || true
	wait "$started" 2>/dev/null || true
	rmdir "$scratch"
	# The last processes leave the cgroups shortly after they are killed.
	for _ in $(seq 500); do
		! find /sys/fs/cgroup -depth -type d -path "*/$name*" -exec rmdir {} + || break
		sleep 0.02
	done 2>/dev/null
}

hierarchies() {
	findmnt --noheadings --output TARGET --types cgroup,cgroup2
}

# Not before the fork: in version 2, a process in the upper group would keep its controllers from
# those below.
join() {
	local name=$1 hierarchy
	shift
	for hierarchy in $(hierarchies); do
		echo 0 >"$hierarchy/$name/cgroup.procs"
	done
	exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin:/opt/kubernetes HOME=/root \
		unshare --cgroup -- "$0" inside "$@"
}

# The node's first process: all that runs there ends with it.
inside() {
	local tree=$1 programs=$2 scratch=$3 here
	here=$(dirname "$(realpath "$0")")
	hostname node
	mount -t tmpfs tmpfs "$scratch"
	mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
	mount -t overlay -o "lowerdir=$tree,upperdir=$scratch/upper,workdir=$scratch/work" \
		overlay "$scratch/root"
	cd "$scratch/root"
	mkdir -p old opt/kubernetes opt/cluster
	mount --bind -o ro "$programs" opt/kubernetes
	mount --bind -o ro "$here" opt/cluster
	mount -t proc proc proc
	mount -t sysfs sysfs sys
	devices
	pivot_root . old
	umount --lazy /old
	rmdir /old
	cd /
	file_systems
	kernel_values
	network
	start containerd --config=/opt/cluster/containerd.toml
	start_control_plane
	start_kubelet
	# It also reaps what containers leave.
	while :; do wait || true; sleep 1; done
}

devices() {
	local name major minor
	mount -t tmpfs -o mode=755 tmpfs dev
	while read -r name major minor; do
		mknod -m 666 "dev/$name" c "$major" "$minor"
	done <<-'END'
		null 1 3
		zero 1 5
		full 1 7
		random 1 8
		urandom 1 9
		kmsg 1 11
		tty 5 0
		fuse 10 229
	END
	mkdir dev/pts dev/shm dev/mqueue
	mount -t devpts -o newinstance,ptmxmode=666 devpts dev/pts
	ln -s pts/ptmx dev/ptmx
	ln -s /proc/self/fd dev/fd
}

file_systems() {
	local directory controllers
	for directory in /run /tmp /var/lib /var/log; do
		mount -t tmpfs -o mode=755 tmpfs "$directory"
	done
	mkdir /run/kubernetes /var/log/cluster /var/lib/kubelet
	mount -t fusectl fusectl /sys/fs/fuse/connections
	control_groups
	# As systemd has it: what a pod mounts can be seen by others.
	mount --make-rshared /
}

# Mount the host's kind: version 2, or hierarchies of version 1 for each controller.
control_groups() {
	local groups=/sys/fs/cgroup controllers word
	mount -t tmpfs -o mode=755 tmpfs "$groups"
	while IFS=: read -r _ controllers _; do
		[[ -n $controllers && $controllers != name=* ]] || continue
		mkdir "$groups/$controllers"
		mount -t cgroup -o "$controllers" cgroup "$groups/$controllers"
	done </proc/self/cgroup
	[[ ! -d $groups/memory ]] || return 0
	umount "$groups"
	mount -t cgroup2 cgroup2 "$groups"
	mkdir "$groups/programs"
	echo 0 >"$groups/programs/cgroup.procs"
	for word in $(<"$groups/cgroup.controllers"); do
		echo "+$word" >"$groups/cgroup.subtree_control"
	done
}

# The kubelet wants these values. The kernel's own are also the host's, so it is shown files.
kernel_values() {
	local name value
	while read -r name value; do
		mkdir -p "/run/values/$(dirname "$name")"
		echo "$value" >"/run/values/$name"
		mount --bind "/run/values/$name" "/proc/sys/$name"
	done <<-'END'
		vm/overcommit_memory 1
		vm/panic_on_oom 0
		kernel/panic 10
		kernel/panic_on_oops 1
		kernel/keys/root_maxkeys 1000000
		kernel/keys/root_maxbytes 25000000
	END
}

# A network of its own, without a way out. The node has an address on the bridge of its pods.
network() {
	ip link set lo up
	ip link add cni0 type bridge
	ip address add "$address/24" dev cni0
	ip link set cni0 up
	mkdir -p /etc/cni/net.d
	cat >/etc/cni/net.d/10-pods.conflist <<-END
		{"cniVersion": "1.0.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "cni0",
		"isGateway": true, "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.32.0.0/24"}]]}}]}
	END
}

# Start a program; its log is the file NAME in /var/log/cluster.
start() {
	"$@" </dev/null >"/var/log/cluster/$1" 2>&1 &
}

start_control_plane() {
	local key=/run/kubernetes/accounts.key
	openssl genrsa -out "$key" 2048 2>/dev/null
	echo 'cluster,admin,admin,system:masters' >/run/kubernetes/tokens
	start etcd --data-dir=/var/lib/etcd --unsafe-no-fsync
	start kube-apiserver --etcd-servers=http://127.0.0.1:2379 --advertise-address="$address" \
		--endpoint-reconciler-type=none --cert-dir=/run/kubernetes --allow-privileged \
		--kubelet-preferred-address-types=InternalIP \
		--token-auth-file=/run/kubernetes/tokens --authorization-mode=Node,RBAC \
		--service-cluster-ip-range=10.96.0.0/16 --service-account-issuer=https://node \
		--service-account-key-file="$key" --service-account-signing-key-file="$key"
	# Those after it end if it does not answer soon.
	until kubectl --kubeconfig=/opt/cluster/kubeconfig.yaml get --raw=/readyz &>/dev/null; do
		kill -0 "$!" || { cat /var/log/cluster/kube-apiserver >&2; exit 1; }
		sleep 0.2
	done
	start kube-controller-manager --kubeconfig=/opt/cluster/kubeconfig.yaml --leader-elect=false \
		--secure-port=0 --service-account-private-key-file="$key"
	start kube-scheduler --kubeconfig=/opt/cluster/kubeconfig.yaml --leader-elect=false \
		--secure-port=0
}

start_kubelet() {
	start kubelet --kubeconfig=/opt/cluster/kubeconfig.yaml --config=/opt/cluster/kubelet.yaml \
		--hostname-override=node --node-ip="$address"
}

"$@"
