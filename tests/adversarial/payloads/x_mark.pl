# x_mark.pl mark WORD: leaves WORD wherever something can be left, and says how many places took it.
# x_mark.pl find: says every place in which something of that kind is found. It is not told the word, so it does not bring it along.
use strict;
use warnings;
my ($mode, $word) = @ARGV;
my $kind = 'RES' . 'IDUE';
my $key = 0x7461736b;
my @trees = qw(/task /tmp /dev /run /var /etc /mnt /srv /home /root /opt);

sub text { my ($path) = @_; open(my $file, '<', $path) or return ''; local $/; my $all = <$file>; defined $all ? $all : '' }
# Two levels of each tree: marks are not left deeper, and outside of a sandbox there is no end of it.
sub walk {
    my ($dir, $depth, $visit) = @_;
    opendir(my $handle, $dir) or return;
    for my $name (readdir $handle) {
        next if $name eq '.' || $name eq '..';
        my $path = $dir eq '/' ? "/$name" : "$dir/$name";
        $visit->($path, $name);
        walk($path, $depth - 1, $visit) if $depth && -d $path && !-l $path;
    }
}
sub everywhere { my ($visit) = @_; walk('/', 0, $visit); walk($_, 1, $visit) for @trees }

if ($mode eq 'mark') {
    my $places = 0;
    my @dirs = ('/', '/proc', '/proc/self', '/proc/sys/kernel', '/sys/fs/cgroup', '/usr', '/usr/bin');
    everywhere(sub { push @dirs, $_[0] if -d $_[0] && !-l $_[0] });
    for my $dir (@dirs) {
        if (open(my $file, '>', "$dir/$word")) { print $file $word; close $file; $places++ }
        $places++ if mkdir "$dir/$word.d";
        $places++ if symlink $word, "$dir/$word.l";
    }
    # Files that are there already.
    for my $path (qw(/etc/passwd /etc/hosts /proc/self/oom_score_adj /proc/sys/kernel/domainname /proc/sys/kernel/hostname)) {
        if (open(my $file, '>>', $path)) { $places++ if print($file $word) && close($file) }
    }
    if (defined(my $id = shmget($key, 4096, 01666))) { $places++ if shmwrite($id, $word, 0, length $word) }
    if (defined(my $id = msgget($key, 01666))) { $places++ if msgsnd($id, pack('l! a*', 1, $word), 04000) }
    $places++ if defined semget($key, 3, 01666);
    # Counters of the network are a place too.
    use Socket;
    if (socket(my $udp, PF_INET, SOCK_DGRAM, 0)) {
        for (1 .. 32) { $places++ if send($udp, $word, 0, sockaddr_in(9, inet_aton('127.0.0.1'))) }
    }
    if (socket(my $unix, PF_UNIX, SOCK_STREAM, 0)) { $places++ if bind($unix, pack('S a*', AF_UNIX, "\0$word")) }
    if (open(my $pty, '+<', '/dev/ptmx')) { $places++ if syswrite($pty, $word) }
    $0 = $word;
    print "$places\n";
} else {
    my @found;
    everywhere(sub {
        my ($path, $name) = @_;
        push @found, "name $path" if $name =~ /$kind/;
        my $is_own = grep { $path =~ m{^\Q$_\E/} } @trees;
        push @found, "content of $path" if $is_own && -f $path && text($path) =~ /$kind/;
    });
    push @found, 'shared memory' if defined shmget($key, 0, 0);
    push @found, 'message queue' if defined msgget($key, 0);
    push @found, 'semaphore' if defined semget($key, 0, 0);
    for my $name (qw(self/mountinfo net/unix self/environ self/cgroup sys/kernel/domainname sys/kernel/hostname)) {
        push @found, "/proc/$name" if text("/proc/$name") =~ /$kind/;
    }
    my ($lo) = text('/proc/net/dev') =~ /lo:\s*(\d+)/;
    push @found, "$lo bytes through loopback" if $lo;
    my ($udp) = (text('/proc/net/snmp') =~ /^Udp: (\d.*)/m);
    push @found, "datagrams: $udp" if defined $udp && $udp =~ /[1-9]/;
    opendir(my $proc, '/proc') or die;
    for my $pid (grep { /^\d+$/ && $_ != $$ } readdir $proc) {
        push @found, "process $pid" if $pid > 2 || text("/proc/$pid/cmdline") =~ /$kind/;
    }
    print map { "$_\n" } @found;
}
