/* G1, `same` and void cells on a machine with store buffers (TSO): a client that submits prompts,
 * cancels and overwrites its arena, and a daemon that copies only what is new to it. Each prompt is
 * 1, 2, 1 1 or 1 2: longer, shorter, the same, other from either position on.
 *
 * MUTANT in the environment takes one thing away (README.md has the table). */
#define REQUESTS 3
#define RING 2 /* submit cells */

byte mutant;

/* memory: written by the client through its buffer; the daemon's progress goes without one, because
 * what is checked here is never the client's reuse of a cell too early (the explorer has that) */
#define GENERATION 0
#define ARENA 1 /* and 2 */
#define SENT 3  /* cells published */
byte mem[4];
chan buffer = [6] of { byte, byte };
typedef cell { byte generation, keep, length };
cell cells[RING];
byte progress;

/* what each request asked for: for the assertion alone */
typedef prompt { byte token[2]; byte length };
prompt asked[REQUESTS + 2];

bool over; /* the client writes no more */

proctype client_stores()
{
    byte word, value;
end:
    do
    :: atomic { buffer?word, value -> mem[word] = value }
    od
}

inline generation_start()
{
    atomic {
        generation = generation + 1;
        buffer!GENERATION, generation;
        printf("client: generation %d\n", generation)
    }
    if
    :: mutant != 6 -> empty(buffer) /* the fence */
    :: else
    fi
}

/* publish() of the library: `sent` and `keep` are its, arena[] what it wrote there itself. */
inline submit()
{
    d_step {
        most = (n < known -> n : known);
        keep = 0;
        do
        :: keep < most && arena[keep] == token[keep] -> keep++
        :: else -> break
        od
    }
    if
    :: mutant != 1 -> generation_start()
    :: else
    fi;
    i = keep;
    do
    :: atomic {
        i < n -> arena[i] = token[i];
        buffer!(ARENA + i), token[i];
        printf("client: arena[%d] = %d\n", i, token[i]);
        i++
       }
    :: else -> break
    od;
    if
    :: mutant == 1 -> generation_start()
    :: else
    fi;
    if
    :: atomic { /* a cell's words and its number: R1 */
        sent - progress < RING ->
        asked[generation].token[0] = token[0];
        asked[generation].token[1] = token[1];
        asked[generation].length = n;
        known = n;
        cells[sent % RING].generation = generation;
        cells[sent % RING].keep = keep;
        cells[sent % RING].length = n;
        sent++;
        buffer!SENT, sent;
        printf("client: request %d, keep %d, length %d\n", generation, keep, n)
       }
    :: atomic { /* no room, and given up before there was: forget_unsent() */
        true ->
        printf("client: request %d was never sent\n", generation);
        known = (mutant == 5 -> n : keep)
       }
    fi
}

proctype client()
{
    byte generation, sent, known, keep, most, n, i, requests;
    byte arena[2], token[2];

    do
    :: requests == REQUESTS -> break
    :: else ->
       atomic {
           requests++;
           if
           :: n = 1; token[0] = 1; token[1] = 0
           :: n = 1; token[0] = 2; token[1] = 0
           :: n = 2; token[0] = 1; token[1] = 1
           :: n = 2; token[0] = 1; token[1] = 2
           fi
       }
       submit();
       if
       :: true
       :: requests == 1 -> generation_start() /* cancel: G1 alone */
       fi
    od;
    empty(buffer);
    over = true
}

/* ingest_cell(), ingest_copy() and ingest_begin() */
proctype daemon()
{
    byte taken, same, valid, i;
    byte tokens[2], copy[2];
    cell c;

    do
    :: atomic { /* A1 */
           mem[SENT] > taken ->
           c.generation = cells[taken % RING].generation;
           c.keep = cells[taken % RING].keep;
           c.length = cells[taken % RING].length;
           if
           :: mutant != 3 -> same = (same < c.keep -> same : c.keep)
           :: else -> same = (mem[GENERATION] == c.generation && c.keep < same -> c.keep : same)
           fi;
           if
           :: mutant == 7 && c.keep > 0 -> same = c.keep
           :: else
           fi;
           valid = (same < c.length -> same : c.length)
       }
       if
       :: mem[GENERATION] != c.generation -> printf("daemon: request %d is void\n", c.generation)
       :: else ->
          i = valid;
          do
          :: atomic {
              i < c.length -> copy[i] = mem[ARENA + i];
              printf("daemon: copies arena[%d] = %d\n", i, copy[i]);
              i++
             }
          :: else -> break
          od;
          if
          :: mutant != 2 && mem[GENERATION] != c.generation ->
             printf("daemon: request %d became void\n", c.generation);
             if
             :: mutant == 4 -> same = c.length
             :: else
             fi
          :: else ->
             atomic {
                 i = valid;
                 do
                 :: i < c.length -> tokens[i] = copy[i]; i++
                 :: else -> break
                 od;
                 same = c.length;
                 printf("daemon: runs request %d on %d %d\n", c.generation, tokens[0],
                        (c.length == 2 -> tokens[1] : 0));
                 assert(c.length == asked[c.generation].length);
                 assert(tokens[0] == asked[c.generation].token[0]);
                 assert(c.length < 2 || tokens[1] == asked[c.generation].token[1])
             }
          fi
       fi;
       atomic {
           taken++;
           progress = taken
       }
    :: over && mem[SENT] == taken -> break
    od
}

init {
    atomic {
        c_code { now.mutant = getenv("MUTANT") ? atoi(getenv("MUTANT")) : 0; }
        run client_stores();
        run client();
        run daemon()
    }
}
