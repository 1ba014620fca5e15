(* Attention on the explicit memory of Machine.v, one head, word by word.

   Words: the d words of every q_i and k_j, the dv words of every v_j and of every
   accumulator a_i (which becomes the output row), the scores s_ij and the statistics
   m_i, l_i (l_i becomes the log-sum-exp).
   Tasks: Score i j forms s_ij from q_i and k_j; Absorb i j adds key j to row i;
   Finish i divides by l_i and turns l_i into the log-sum-exp.

     fused = true     q_i, k_j, v_j and a_i are all in fast memory at Absorb i j;
     fused = false    q_i meets k_j at one moment, a_i meets v_j at another;
     scores = true      s_ij is a word like the others, and Absorb i j needs the score;
                        otherwise scores are taken to be free;
     statistics = true  m_i and l_i are words like the others, and Absorb i j needs
                        them; otherwise statistics are taken to be free. *)
From Coq Require Import Arith Lia List.
From iosim Require Import Lists Machine.
Import ListNotations.

Inductive aword :=
| Wq (i c : nat) | Wk (j c : nat) | Wv (j c : nat) | Wa (i c : nat)
| Ws (i j : nat) | Wm (i : nat) | Wl (i : nat).

Inductive atask := Score (i j : nat) | Absorb (i j : nat) | Finish (i : nat).

Definition aword_dec (x y : aword) : {x = y} + {x <> y}.
Proof. decide equality; apply Nat.eq_dec. Defined.

Definition is_input (w : aword) : bool :=
  match w with Wq _ _ | Wk _ _ | Wv _ _ => true | _ => false end.

Section Attention.
Variables (fused scores statistics : bool) (d dv : nat).
Variable vis : list (nat * nat).                   (* the visible pairs (i, j) *)

Definition q_words i := map (Wq i) (seq 0 d).
Definition k_words j := map (Wk j) (seq 0 d).
Definition v_words j := map (Wv j) (seq 0 dv).
Definition a_words i := map (Wa i) (seq 0 dv).
Definition s_words i j := if scores then [Ws i j] else [].
Definition stats i := if statistics then [Wm i; Wl i] else [].

Definition attention : model := {|
  word := aword;
  task := atask;
  word_dec := aword_dec;
  input := is_input;
  needs t := match t with
    | Score i j => if scores then q_words i ++ k_words j ++ s_words i j else []
    | Absorb i j => (if fused then q_words i ++ k_words j else [])
                    ++ v_words j ++ a_words i ++ s_words i j ++ stats i
    | Finish i => a_words i ++ stats i
    end;
  outs t := match t with
    | Score i j => s_words i j
    | Absorb i _ | Finish i => a_words i ++ stats i
    end;
  ready t c := match t with
    | Score _ _ => True
    | Absorb i j => scores = true -> In (Score i j) (c (Ws i j))
    | Finish i => forall j w, In (i, j) vis -> In w (a_words i ++ stats i) ->
                  In (Absorb i j) (c w)
    end
|}.

(* Every accumulator word is in slow memory with all its visible keys. *)
Definition complete (s : state attention) : Prop :=
  forall i j c, In (i, j) vis -> c < dv -> In (Absorb i j) (saved s (Wa i c)).

(* Moreover rows 0 .. nq - 1 are normalised, and their log-sum-exp is saved. *)
Definition finished (nq : nat) (s : state attention) : Prop :=
  forall i, i < nq ->
    (forall c, c < dv -> In (Finish i) (saved s (Wa i c))) /\
    (statistics = true -> In (Finish i) (saved s (Wl i))).
End Attention.

Definition all_pairs nq nk := list_prod (seq 0 nq) (seq 0 nk).

Lemma all_pairs_NoDup nq nk : NoDup (all_pairs nq nk).
Proof. apply NoDup_list_prod; apply seq_NoDup. Qed.

Lemma all_pairs_length nq nk : length (all_pairs nq nk) = nq * nk.
Proof. unfold all_pairs. now rewrite prod_length, !seq_length. Qed.

(* Under a causal mask query i sees the keys up to i + nk - nq. *)
Definition causal_pairs nq nk :=
  flat_map (fun i => map (pair i) (seq 0 (S i + (nk - nq)))) (seq 0 nq).

Lemma in_causal_pairs nq nk i j :
  In (i, j) (causal_pairs nq nk) <-> i < nq /\ j <= i + (nk - nq).
Proof.
  unfold causal_pairs. rewrite in_flat_map. split.
  - intros (i' & Hi & H). apply in_map_iff in H as (j' & E & Hj). injection E as -> ->.
    rewrite in_seq in *. lia.
  - intros [Hi Hj]. exists i. split; [ apply in_seq; lia | ].
    apply in_map. apply in_seq. lia.
Qed.

Lemma causal_pairs_NoDup nq nk : NoDup (causal_pairs nq nk).
Proof.
  apply (NoDup_flat_map fst); [ apply seq_NoDup | | ].
  - intros. apply NoDup_map; [ congruence | apply seq_NoDup ].
  - intros i p _ H. now apply in_map_iff in H as (j & <- & _).
Qed.

Lemma causal_pairs_length n : 2 * length (causal_pairs n n) = n * (n + 1).
Proof.
  unfold causal_pairs. rewrite Nat.sub_diag.
  induction n as [| n IH]; [ reflexivity | ].
  rewrite seq_S, flat_map_app, app_length, Nat.mul_add_distr_l, IH.
  cbn [flat_map]. rewrite app_nil_r, map_length, seq_length. lia.
Qed.

(* Sides and owners, for counting. *)
Definition query_side (w : aword) : bool :=
  match w with Wq _ _ | Wa _ _ => true | _ => false end.
Definition row_of (w : aword) : nat :=
  match w with Wq i _ | Wk i _ | Wv i _ | Wa i _ | Ws i _ | Wm i | Wl i => i end.
Definition owner (xy : aword * aword) : nat * nat := (row_of (fst xy), row_of (snd xy)).

Lemma in_words (f : nat -> aword) n w : In w (map f (seq 0 n)) <-> exists c, c < n /\ f c = w.
Proof.
  rewrite in_map_iff. split; intros (c & H1 & H2); exists c;
    [ rewrite in_seq in H2 | rewrite in_seq ]; split; trivial; lia.
Qed.

Lemma words_NoDup (f : nat -> aword) n : (forall x y, f x = f y -> x = y) -> NoDup (map f (seq 0 n)).
Proof. intros H. apply NoDup_map; [ exact H | apply seq_NoDup ]. Qed.

(* Which word is it, when it is in a list of them? *)
Ltac in_words := repeat match goal with
  | H : In _ (_ ++ _) |- _ => apply in_app_iff in H; destruct H
  | H : In _ (map _ (seq 0 _)) |- _ =>
      let E := fresh "E" in apply in_words in H as (? & ? & E); first [ discriminate E | subst ]
  end.
