/* S1 and S2 with tickets on a machine with store buffers (TSO): a client that waits for cells, by
 * futex or by an event loop, and a daemon that waits for room in a ring of one, which may die. The
 * client's 250 ms look is Spin's `timeout`: it comes when nothing else can happen.
 *
 * A store goes into its process's buffer and from there to memory, first in, first out, at any
 * time; a fence waits until the buffer is empty, and so does a system call. No word has two writers,
 * so no process needs to look into its own buffer for another's word.
 *
 * MUTANT in the environment takes one thing away (README.md has the table); DIES=1: the daemon may
 * die; LOOK=0: the client does not look by itself; EARLY=N: N times it looks at any moment instead. */
#define CELLS 2 /* cells in all */

byte mutant, dies, look, early;

/* memory, each word with its writer's buffer */
#define CELL 0     /* daemon: cells published */
#define WAKE 1     /* daemon */
#define SLEEPING 2 /* daemon */
#define PROGRESS 3 /* client: cells consumed */
#define WAITING 4  /* client: 0, or ticket << 1 | way */
#define MAIL 5     /* daemon: wakes handed to the control thread, which makes the system call */
byte mem[6];
chan client_buffer = [4] of { byte, byte };
chan daemon_buffer = [4] of { byte, byte };
#define client_store(word, value) client_buffer!word, value
#define daemon_store(word, value) daemon_buffer!word, value
#define client_fence empty(client_buffer)
#define daemon_fence empty(daemon_buffer)

/* the kernel */
bool asleep;    /* the client, in its futex */
bool bell;      /* the eventfd has been written since the daemon last came out of its wait */
bool readable;  /* the client's end of the socketpair */
bool hung_up;   /* the daemon's end of the handshake socket is closed */

byte got;     /* cells that the client has taken */
bool ended;   /* the client was told that the daemon is gone */

proctype client_stores()
{
    byte word, value;
end:
    do
    :: atomic { client_buffer?word, value -> mem[word] = value }
    od
}

proctype daemon_stores()
{
    byte word, value;
end:
    do
    :: atomic { daemon_buffer?word, value -> mem[word] = value }
    od
}

#define ready (mem[CELL] > got)

/* sleeper_announce() */
inline announce(way)
{
    if
    :: mutant != 7 -> number = number + 1
    :: else -> number = 1
    fi;
    printf("client announces ticket %d\n", number);
    client_store(WAITING, (number << 1) | way);
    if
    :: mutant != 1 -> client_fence
    :: else
    fi
}

inline awake()
{
    client_store(WAITING, 0)
}

/* sleeper_block(): until there is a cell or the daemon is gone. */
inline block()
{
    do
    :: seen = mem[WAKE];
       announce(0);
       timed_out = false;
       if
       :: mutant != 5 && ready -> printf("client sees a cell at its second look\n")
       :: else ->
          if
          :: mutant == 9 -> seen = mem[WAKE]
          :: else
          fi;
          client_fence; /* as a system call does */
          atomic {
              if
              :: mem[WAKE] == seen -> asleep = true; printf("client sleeps\n")
              :: else -> printf("client finds that the wake word has moved\n")
              fi
          };
          if
          :: !asleep
          :: look && timeout ->
             printf("client looks by itself\n");
             asleep = false;
             timed_out = true
          :: asleep && looks < early ->
             printf("client looks by itself, early\n");
             asleep = false;
             timed_out = true;
             looks++
          fi
       fi;
       awake();
       if
       :: ready -> assert(!timed_out || hung_up || early); break
       :: else
       fi;
       if
       :: timed_out && hung_up ->
          if
          :: mutant != 12 && ready
          :: else -> ended = true
          fi;
          break
       :: else
       fi
    od
}

/* An event loop: hearth_next() arms and goes back to it, and comes again when the descriptor is
 * readable. While armed, a submit that finds its ring full waits by the clock (submit.c). */
inline event_loop()
{
    do
    :: ready -> break
    :: else ->
       announce(1);
       if
       :: mutant != 5 && ready -> awake(); break
       :: else
       fi;
       if
       :: true
       :: mutant == 11 -> printf("client waits for room, armed as it is\n"); announce(0); awake()
       fi;
       client_fence;
       printf("client polls\n");
       if
       :: readable
       :: hung_up -> readable = true
       fi;
       awake();
       readable = false;
       if
       :: hung_up && !ready -> ended = true; break
       :: else
       fi
    od
}

proctype client()
{
    byte seen, number, looks;
    bool timed_out;

    do
    :: got == CELLS || ended -> break
    :: else ->
       if
       :: ready
       :: else ->
          if
          :: skip; block()
          :: skip; event_loop()
          fi
       fi;
       if
       :: ended
       :: else ->
          got = mem[CELL];
          printf("client has %d cells\n", got);
          client_store(PROGRESS, got); /* R2 */
          if
          :: mutant != 4 -> client_fence /* S2 */
          :: else
          fi;
          if
          :: mem[SLEEPING] -> client_fence; printf("client rings\n"); bell = true
          :: else
          fi
       fi
    od;
    assert(!ended || got == mem[CELL]) /* what was published before the daemon died is not lost */
}

/* engine_wake_all() with one client. */
inline wake_client()
{
    ticket = mem[WAITING];
    if
    :: ticket == 0 || ticket == last
    :: else ->
       last = ticket;
       if
       :: ticket & 1 -> daemon_fence; printf("daemon notifies ticket %d\n", ticket >> 1); readable = true
       :: else ->
          if
          :: mutant != 8 -> wake = wake + 1; daemon_store(WAKE, wake)
          :: else
          fi;
          printf("daemon wakes ticket %d\n", ticket >> 1);
          if
          :: daemon_fence; asleep = false /* the system call, by itself */
          :: handed = handed + 1; daemon_store(MAIL, handed) /* or the control thread's, later */
          fi
       fi
    fi
}

proctype control_thread()
{
    byte taken;
end:
    do
    :: mem[MAIL] != taken -> taken++; asleep = false
    od
}

#define room (mem[PROGRESS] == sent)

proctype daemon()
{
    byte sent, ticket, last, wake, handed;

    do
    :: sent == CELLS -> break
    :: dies -> printf("daemon dies\n"); break
    :: sent < CELLS -> /* S1: announce, look, block */
       do
       :: room -> break
       :: else ->
          daemon_store(SLEEPING, 1);
          if
          :: mutant != 3 -> daemon_fence
          :: else
          fi;
          if
          :: mutant != 6 && room
          :: else ->
             daemon_fence;
             printf("daemon waits\n");
             bell; /* until it was rung */
             bell = false;
             printf("daemon is rung\n")
          fi;
          daemon_store(SLEEPING, 0)
       od;
       if
       :: mutant == 10 -> wake_client()
       :: else
       fi;
       sent++;
       printf("daemon publishes cell %d\n", sent);
       daemon_store(CELL, sent); /* R1 */
       if
       :: dies -> printf("daemon dies\n"); break
       :: true
       fi;
       if
       :: mutant != 2 -> daemon_fence /* S2 */
       :: else
       fi;
       if
       :: mutant != 10 -> wake_client()
       :: else
       fi
    od;
    daemon_fence;
    hung_up = dies
}

init {
    atomic {
        c_code {
            now.mutant = getenv("MUTANT") ? atoi(getenv("MUTANT")) : 0;
            now.dies = getenv("DIES") ? atoi(getenv("DIES")) : 0;
            now.look = getenv("LOOK") ? atoi(getenv("LOOK")) : 1;
            now.early = getenv("EARLY") ? atoi(getenv("EARLY")) : 0;
        }
        run client_stores();
        run daemon_stores();
        run client();
        run control_thread();
        run daemon()
    }
}
